package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
)

// Progress is for terminals, and only for what takes longer than a second.
func TestProgress(t *testing.T) {
	for _, c := range []struct {
		tty  bool
		wait time.Duration
		want string
	}{
		{true, 900 * time.Millisecond, ""},
		{true, 2500 * time.Millisecond, "\r\x1b[Ktoolctl: working … 1s\r\x1b[Ktoolctl: working … 2s\r\x1b[K"},
		{false, 2500 * time.Millisecond, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			var b bytes.Buffer
			a := &app{stderr: &b, errTTY: c.tty}
			p := a.progress("working")
			time.Sleep(c.wait)
			p.stop()
			if b.String() != c.want {
				t.Errorf("after %s: %q, want %q", c.wait, b.String(), c.want)
			}
		})
	}
}

// On a terminal top draws again and again, until Ctrl-C.
func TestTopOnTerminal(t *testing.T) {
	d := startFake(t, map[string]http.HandlerFunc{
		"GET /v1/sessions":      answerWith(client.List[client.Session]{Items: []client.Session{session()}}),
		"GET /v1/sessions/{id}": answerWith(session()),
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	out := &countingWriter{onWrite: func(n int) {
		if n == 3 {
			cancel(&interruptedError{syscall.SIGINT})
		}
	}}
	a := &app{stdout: out, stderr: new(strings.Builder), getenv: func(string) string { return "" }, outTTY: true}
	if code := run(ctx, []string{"--socket", d.socket, "top", "--interval", "1ms"}, a); code != 0 {
		t.Errorf("exit %d", code)
	}
	frame, rest, _ := strings.Cut(strings.TrimPrefix(out.String(), "\x1b[H\x1b[2J"), "\x1b[H\x1b[2J")
	if !strings.Contains(frame, "1 session, ") || !strings.Contains(frame, "\x1b[32mready\x1b[0m") || !strings.Contains(rest, "0%") {
		t.Errorf("drew %q", out.String())
	}
}

// countingWriter tells how many writes there were.
type countingWriter struct {
	strings.Builder
	writes  int
	onWrite func(n int)
}

func (w *countingWriter) Write(p []byte) (int, error) {
	w.writes++
	w.onWrite(w.writes)
	return w.Builder.Write(p)
}

// The first signal asks, the second one does not wait.
func TestSignals(t *testing.T) {
	var mu sync.Mutex
	var exits []int
	exited := make(chan struct{})
	ctx, stop := interruptible(t.Context(), func(code int) {
		mu.Lock()
		defer mu.Unlock()
		exits = append(exits, code)
		close(exited)
	})
	raise(t, syscall.SIGHUP)
	<-ctx.Done()
	if err := interruption(ctx); err == nil || err.Error() != "stopped by hangup" || exitCode(err) != 129 {
		t.Errorf("cause %v", err)
	}
	raise(t, syscall.SIGTERM)
	<-exited
	stop()
	mu.Lock()
	defer mu.Unlock()
	if len(exits) != 1 || exits[0] != 143 {
		t.Errorf("exits %v", exits)
	}
}

func raise(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(syscall.Getpid(), s); err != nil {
		t.Fatal(err)
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", 90 * time.Second: "1m", 47 * time.Hour: "47h", 49 * time.Hour: "2d",
	} {
		if got := span(d); got != want {
			t.Errorf("%s: got %s, want %s", d, got, want)
		}
	}
}

func TestStateColors(t *testing.T) {
	for state, want := range map[client.SessionState]int{
		client.SessionReady: colorGreen, client.SessionLost: colorRed, client.SessionEnded: colorGrey, client.SessionEnding: colorYellow,
	} {
		if got := stateColor(state); got != want {
			t.Errorf("%s: %d", state, got)
		}
	}
	for status, want := range map[client.CheckStatus]int{
		client.CheckOK: colorGreen, client.CheckFail: colorRed, client.CheckNA: colorGrey, client.CheckWarn: colorYellow,
	} {
		if got := checkColor(status); got != want {
			t.Errorf("%s: %d", status, got)
		}
	}
}

func TestCallResult(t *testing.T) {
	for want, c := range map[string]client.Call{
		"ok":      {Status: client.CallCompleted},
		"failed":  {Status: client.CallCompleted, IsError: true},
		"running": {Status: client.CallRunning},
		"denied":  {Status: client.CallError, Error: &client.Error{Code: client.CodeDenied}},
		"error":   {Status: client.CallError},
	} {
		if got, _ := callResult(&c); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	begin := time.Unix(0, 0)
	end := begin.Add(1234 * time.Millisecond)
	if got := callTook(&client.Call{Time: client.CallTime{Started: &begin, Ended: &end}}); got != "1.23s" {
		t.Errorf("took %s", got)
	}
}

// newPTY gives a pseudo-terminal: what is written into it are the keys, and the
// path is that of the terminal.
func newPTY(t *testing.T) (keys *os.File, path string) {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { keys.Close() })
	fd := int(keys.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 11, Col: 22})
	}
	if err != nil {
		t.Fatal(err)
	}
	return keys, fmt.Sprintf("/dev/pts/%d", n)
}

// TestTTY: keys come one by one and are not shown, Close ends a Read that waits,
// and the terminal is as it was.
func TestTTY(t *testing.T) {
	keys, path := newPTY(t)
	was, err := unix.IoctlGetTermios(int(keys.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	term, err := openTTY(path)
	if err != nil {
		t.Fatal(err)
	}
	if w, h := term.size(); w != 22 || h != 11 {
		t.Errorf("size %d×%d, want 22×11", w, h)
	}
	k := readKeys(term)
	for _, key := range []string{"o", "ü", "\x04"} {
		if _, err := keys.WriteString(key); err != nil {
			t.Fatal(err)
		}
		if got := <-k.pressed; got.text != key {
			t.Errorf("pressed %q, got %q", key, got.text)
		}
	}
	now, err := unix.IoctlGetTermios(int(keys.Fd()), unix.TCGETS)
	if err != nil || now.Lflag&(unix.ECHO|unix.ICANON) != 0 || now.Lflag&unix.ISIG == 0 {
		t.Errorf("flags %x, %v: want neither echo nor lines, but signals", now.Lflag, err)
	}
	if err := term.Close(); err != nil {
		t.Error(err)
	}
	k.wait()
	if now, err = unix.IoctlGetTermios(int(keys.Fd()), unix.TCGETS); err != nil || *now != *was {
		t.Errorf("left as %+v, %v; was %+v", now, err, was)
	}
	if _, err := openTTY("/dev/null"); err == nil {
		t.Error("/dev/null is taken for a terminal")
	}
	if _, err := openTTY("/nonexistent/tty"); err == nil {
		t.Error("a missing terminal is opened")
	}
}
