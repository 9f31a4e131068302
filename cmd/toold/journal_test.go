package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakeJournal listens where journald would.
func fakeJournal(t *testing.T) (path string, conn *net.UnixConn) {
	t.Helper()
	path = filepath.Join(filepath.Dir(filepath.Dir(socketIn(t))), "journal")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	mustNil(t, err)
	t.Cleanup(func() { conn.Close() })
	return path, conn
}

// receive reads one entry and takes it apart as journald does.
func receive(t *testing.T, conn *net.UnixConn) map[string]string {
	t.Helper()
	mustNil(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	buf := make([]byte, 1<<20)
	n, err := conn.Read(buf)
	mustNil(t, err)
	fields, err := decodeEntry(buf[:n])
	mustNil(t, err)
	return fields
}

func decodeEntry(data []byte) (map[string]string, error) {
	fields := map[string]string{}
	for len(data) > 0 {
		line, rest, ok := bytes.Cut(data, []byte("\n"))
		if !ok {
			return nil, fmt.Errorf("no end of line in %q", data)
		}
		name, value, plain := strings.Cut(string(line), "=")
		if !plain {
			if len(rest) < 8 {
				return nil, fmt.Errorf("no length after %q", line)
			}
			n := binary.LittleEndian.Uint64(rest)
			if uint64(len(rest)) < 8+n+1 || rest[8+n] != '\n' {
				return nil, fmt.Errorf("length %d of %q is wrong", n, line)
			}
			value, rest = string(rest[8:8+n]), rest[8+n+1:]
		}
		if _, twice := fields[name]; twice || name == "" {
			return nil, fmt.Errorf("field %q twice, or none", name)
		}
		fields[name], data = value, rest
	}
	return fields, nil
}

func TestJournalFields(t *testing.T) {
	path, conn := fakeJournal(t)
	log := slog.New(newJournalHandler(path, new(bytes.Buffer)))
	log.With("session", "ses_1").WithGroup("call").Warn("call finished", "id", "call_1", slog.Group("time", "ms", 5))
	got := receive(t, conn)
	for name, want := range map[string]string{
		"MESSAGE":  `call finished session="ses_1" call_id="call_1" call_time_ms="5"`,
		"PRIORITY": "4", "SYSLOG_IDENTIFIER": "toold",
		"TOOLD_SESSION": "ses_1", "TOOLD_CALL_ID": "call_1", "TOOLD_CALL_TIME_MS": "5",
	} {
		if got[name] != want {
			t.Errorf("%s: got %q, want %q", name, got[name], want)
		}
	}
	log.Debug("not logged")
	log.Error("next", "session", "ses_2")
	if got := receive(t, conn); got["PRIORITY"] != "3" || got["TOOLD_SESSION"] != "ses_2" || len(got) != 4 {
		t.Errorf("got %v", got)
	}
}

func TestJournalFieldNames(t *testing.T) {
	for key, want := range map[string]string{
		"a.b-c": "TOOLD_A_B_C", "é": "TOOLD__", "X9": "TOOLD_X9", "a=b\nMESSAGE": "TOOLD_A_B_MESSAGE",
		strings.Repeat("k", 100): "TOOLD_" + strings.Repeat("K", 58),
	} {
		if got := fieldName(key); got != want {
			t.Errorf("%q: got %s, want %s", key, got, want)
		}
	}
}

// TestJournalHostile: what a session says is a value, in whatever form, and cannot
// become a field or an entry of its own.
func TestJournalHostile(t *testing.T) {
	path, conn := fakeJournal(t)
	log := slog.New(newJournalHandler(path, new(bytes.Buffer)))
	for _, value := range []string{
		"x\nPRIORITY=0\n_PID=1\n", "\n", "=", "\x00\xff\xfe", "\x1b[2J", "a\n\x05\x00\x00\x00\x00\x00\x00\x00evil!\n", strings.Repeat("é\n", 1<<20),
	} {
		log.Info("call ended", "title", value)
		got := receive(t, conn)
		if got["PRIORITY"] != "6" || got["_PID"] != "" || len(got) != 4 {
			t.Errorf("%.40q became fields: %.200q", value, got)
		}
		if want := cut(value, journalValue); got["TOOLD_TITLE"] != want || len(want) > journalValue {
			t.Errorf("%.40q: got %.80q of %d bytes", value, got["TOOLD_TITLE"], len(got["TOOLD_TITLE"]))
		}
		if strings.ContainsAny(got["MESSAGE"], "\n\x1b\x00") || len(got["MESSAGE"]) > journalText {
			t.Errorf("%.40q: the message is %.200q (%d bytes)", value, got["MESSAGE"], len(got["MESSAGE"]))
		}
	}
}

// TestJournalEntryFits: however much there is, it is one datagram.
func TestJournalEntryFits(t *testing.T) {
	path, conn := fakeJournal(t)
	var attrs []any
	for i := range 200 {
		attrs = append(attrs, fmt.Sprintf("key%d", i), strings.Repeat("v\n", 1<<15))
	}
	slog.New(newJournalHandler(path, new(bytes.Buffer))).Info("much", attrs...)
	if got := receive(t, conn); len(got) != 3+journalFields {
		t.Errorf("got %d fields, want %d", len(got), 3+journalFields)
	}
}

// TestJournalGone: without journald the lines are on standard error, with
// everything that was said of them.
func TestJournalGone(t *testing.T) {
	path, conn := fakeJournal(t)
	var stderr bytes.Buffer
	log := slog.New(newJournalHandler(path, &stderr)).With("session", "ses_1")
	log.Info("first")
	receive(t, conn)
	conn.Close()
	mustNil(t, os.Remove(path))
	log.Info("second", "call", "call_1")
	if got := stderr.String(); !strings.Contains(got, `msg=second session=ses_1 call=call_1`) || strings.Contains(got, "first") {
		t.Errorf("on standard error: %q", got)
	}
	again, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	mustNil(t, err)
	defer again.Close()
	log.Info("third")
	if got := receive(t, again); got["TOOLD_SESSION"] != "ses_1" {
		t.Errorf("after journald came back: %v", got)
	}
}

// TestJournalStalled: a journald that takes nothing stops nobody, and the log says
// what is missing of it.
func TestJournalStalled(t *testing.T) {
	path, conn := fakeJournal(t)
	h := newJournalHandler(path, new(bytes.Buffer))
	log := slog.New(h)
	for h.out.lost < 2 { // more than the queue holds
		log.Info("line")
	}
	var last map[string]string
	for taken := 0; last["TOOLD_LINES"] == ""; taken++ {
		if taken == 1 {
			log.Info("after") // there is room again
		}
		last = receive(t, conn)
	}
	if last["TOOLD_LINES"] != "2" || last["PRIORITY"] != "4" {
		t.Errorf("got %v", last)
	}
}

func FuzzJournalEntry(f *testing.F) {
	f.Add("message", "key", "value")
	f.Add("m\nPRIORITY=0", "k\n", "\n\x00\x00=")
	f.Fuzz(func(t *testing.T, message, key, value string) {
		got, err := decodeEntry(encodeEntry(slog.LevelInfo, message, []journalField{{key, value}}))
		if err != nil {
			t.Fatal(err)
		}
		if got["PRIORITY"] != "6" || len(got) != 4 || got[fieldName(key)] != cut(value, journalValue) {
			t.Errorf("got %q", got)
		}
	})
}
