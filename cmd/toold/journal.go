package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/descriptor"
)

// journalSocket is where journald takes entries.
const journalSocket = "/run/systemd/journal/socket"

// Bounds of one entry: what a log line quotes may come from a session. All of it
// fits into one datagram.
const (
	journalValue  = 8 << 10 // bytes of one field
	journalText   = 16 << 10
	journalFields = 64
	journalName   = 64 // journald's own bound
)

// journalWait is how long a line waits for a journald that takes none. Then it is
// dropped, and counted: the daemon must not stand still with its log.
const journalWait = 200 * time.Millisecond

// journalHandler sends records to journald with each attribute as a field, so
// that `journalctl TOOLD_SESSION=ses_…` finds all lines of a session.
type journalHandler struct {
	out      *journalConn
	fallback slog.Handler // where journald's socket is gone
	fields   []journalField
	prefix   string // of groups
}

type journalField struct{ key, value string }

func newJournalHandler(socket string, stderr io.Writer) *journalHandler {
	return &journalHandler{out: &journalConn{path: socket}, fallback: slog.NewTextHandler(stderr, nil)}
}

// Enabled implements slog.Handler.
func (h *journalHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

// Handle implements slog.Handler. The message carries the attributes too, for
// those who only look at messages.
func (h *journalHandler) Handle(ctx context.Context, r slog.Record) error {
	fields := slices.Clip(h.fields)
	r.Attrs(func(a slog.Attr) bool {
		fields = flatten(fields, h.prefix, a)
		return true
	})
	if h.out.send(encodeEntry(r.Level, r.Message, fields)) != nil {
		return h.fallback.Handle(ctx, r)
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (h *journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.fields = slices.Clip(h.fields)
	for _, a := range attrs {
		c.fields = flatten(c.fields, h.prefix, a)
	}
	c.fallback = h.fallback.WithAttrs(attrs)
	return &c
}

// WithGroup implements slog.Handler.
func (h *journalHandler) WithGroup(name string) slog.Handler {
	c := *h
	c.prefix, c.fallback = h.prefix+name+"_", h.fallback.WithGroup(name)
	return &c
}

// flatten appends an attribute, or those of a group.
func flatten(fields []journalField, prefix string, a slog.Attr) []journalField {
	v := a.Value.Resolve()
	if v.Kind() != slog.KindGroup {
		return append(fields, journalField{prefix + a.Key, v.String()})
	}
	if a.Key != "" {
		prefix += a.Key + "_"
	}
	for _, sub := range v.Group() {
		fields = flatten(fields, prefix, sub)
	}
	return fields
}

// encodeEntry writes an entry in journald's native format.
func encodeEntry(level slog.Level, message string, fields []journalField) []byte {
	fields = fields[:min(len(fields), journalFields)]
	text := new(strings.Builder)
	text.WriteString(message)
	for _, f := range fields {
		fmt.Fprintf(text, " %s=%q", f.key, cut(f.value, journalValue))
	}
	b := new(bytes.Buffer)
	appendField(b, "MESSAGE", cut(text.String(), journalText))
	appendField(b, "PRIORITY", strconv.Itoa(int(priority(level))))
	appendField(b, "SYSLOG_IDENTIFIER", "toold")
	// Those of the same bytes in total that one message may have: many long values
	// would not fit into a datagram.
	room := 4 * journalText
	for _, f := range fields {
		value := cut(f.value, min(journalValue, room))
		room -= len(value)
		appendField(b, fieldName(f.key), value)
	}
	return b.Bytes()
}

// appendField writes a value with its length, so that whatever is in it is the
// value and not another field.
func appendField(b *bytes.Buffer, name, value string) {
	b.WriteString(name)
	if !strings.Contains(value, "\n") {
		b.WriteString("=" + value + "\n")
		return
	}
	b.WriteByte('\n')
	_ = binary.Write(b, binary.LittleEndian, uint64(len(value))) // a Buffer takes all
	b.WriteString(value + "\n")
}

// cut bounds a value and says that it did.
func cut(s string, n int) string {
	const mark = "… (cut)"
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:max(0, n-len(mark))], "") + mark
}

// fieldName makes a name that journald takes: capitals, digits and "_".
func fieldName(key string) string {
	name := "TOOLD_" + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z' || r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, key)
	return name[:min(len(name), journalName)]
}

func priority(l slog.Level) journal.Priority {
	switch {
	case l >= slog.LevelError:
		return journal.PriErr
	case l >= slog.LevelWarn:
		return journal.PriWarning
	case l >= slog.LevelInfo:
		return journal.PriInfo
	}
	return journal.PriDebug
}

// journalConn sends datagrams to journald. Its methods may be called from any
// goroutine.
type journalConn struct {
	path string

	mu   sync.Mutex // guards what follows
	conn *net.UnixConn
	lost int // entries since the last one that journald took
}

// send gives journald an entry, after one that says how many before it were lost.
// An error means that there is no journald; one that does not take the entry in
// time is none.
func (c *journalConn) send(entry []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost > 0 {
		taken, err := c.write(encodeEntry(slog.LevelWarn, "journald took no entries: lines of the log are lost",
			[]journalField{{"lines", strconv.Itoa(c.lost)}}))
		if err != nil {
			return err
		}
		if !taken {
			c.lost++
			return nil
		}
		c.lost = 0
	}
	taken, err := c.write(entry)
	if err == nil && !taken {
		c.lost++
	}
	return err
}

// write sends one datagram, connecting first where that has not been done or was to
// another journald. c.mu is held.
func (c *journalConn) write(entry []byte) (taken bool, err error) {
	for again := true; ; again = false {
		if c.conn == nil {
			if c.conn, err = net.DialUnix("unixgram", nil, &net.UnixAddr{Name: c.path, Net: "unixgram"}); err != nil {
				return false, err
			}
		}
		// At once, if there is room: a deadline can have passed before the first
		// attempt on a host that is busy.
		if err = sendNow(c.conn, entry); errors.Is(err, unix.EAGAIN) {
			if err = c.conn.SetWriteDeadline(time.Now().Add(journalWait)); err == nil {
				_, err = c.conn.Write(entry)
			}
		}
		if err == nil {
			return true, nil
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return false, nil
		}
		_ = c.conn.Close()
		c.conn = nil
		if !again {
			return false, err
		}
	}
}

// sendNow sends a datagram if that needs no waiting, and fails with EAGAIN if it does.
func sendNow(conn *net.UnixConn, data []byte) error {
	_, err := descriptor.Use(conn, func(fd int) (struct{}, error) {
		for {
			err := unix.Send(fd, data, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
			if !errors.Is(err, unix.EINTR) {
				return struct{}{}, err
			}
		}
	})
	return err
}
