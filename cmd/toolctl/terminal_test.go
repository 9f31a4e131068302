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
	"github.com/toold/toold/internal/testrig"
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

// On a terminal top draws again and again, and does what keys say, until q or Ctrl-C.
func TestTopOnTerminal(t *testing.T) {
	other := session()
	other.ID, other.Name, other.Usage.MemoryBytes = "ses_9", "evil\x1b]0;x\a", 900<<20
	ended := make(chan string, 8)
	d := startFake(t, map[string]http.HandlerFunc{
		"GET /v1/sessions": answerWith(client.List[client.Session]{Items: []client.Session{session(), other}}),
		"GET /v1/sessions/{id}": func(w http.ResponseWriter, r *http.Request) {
			s := session()
			if r.PathValue("id") == other.ID {
				s = other
			}
			answer(w, 200, s)
		},
		"GET /v1/sessions/{id}/calls": func(w http.ResponseWriter, r *http.Request) {
			call := bashDone("", nil)
			call.Status = client.CallStatus(r.URL.Query().Get("status"))
			if call.Status == client.CallPending {
				call.ID = "call_9"
			}
			answer(w, 200, client.List[client.Call]{Items: []client.Call{call}})
		},
		"POST /v1/calls/{id}/abort": func(w http.ResponseWriter, r *http.Request) {
			ended <- r.PathValue("id")
			answer(w, 200, bashDone("", nil))
		},
		"DELETE /v1/sessions/{id}": func(w http.ResponseWriter, r *http.Request) {
			ended <- r.PathValue("id")
			answer(w, 200, other)
		},
	})
	out, term := &screenText{}, newFakeTerminal()
	a := &app{stdout: out, stderr: out, getenv: func(string) string { return "" }, outTTY: true, openTerminal: func() (terminal, error) { return term, nil }}
	ctx, cancel := context.WithCancelCause(t.Context())
	code := make(chan int, 1)
	go func() { code <- run(ctx, []string{"--socket", d.socket, "top", "--interval", "1ms"}, a) }()
	press := func(keys string) {
		t.Helper()
		if _, err := term.keys.Write([]byte(keys)); err != nil {
			t.Fatal(err)
		}
	}
	out.await(t, ">  ses_0123")
	out.await(t, "memory 903MiB")
	out.await(t, "0%") // a second look
	press("m")
	out.await(t, "now by memory")
	press("\x1b[A")
	out.await(t, ">  ses_9")
	press("a")
	out.await(t, `abort the calls of evil\x1b]0;x\x07?`)
	press("y")
	if a, b := <-ended, <-ended; a+b != "call_9call_0123" {
		t.Errorf("aborted %s and %s", a, b)
	}
	press("e")
	out.await(t, `end session evil`)
	press("n") // any other key does not
	press("e")
	press("y")
	if id := <-ended; id != other.ID {
		t.Errorf("ended %s", id)
	}
	press("q")
	if c := <-code; c != 0 || strings.Contains(out.String(), "\x1b]") || len(ended) > 0 {
		t.Errorf("exit %d, %d more ended, drew %q", c, len(ended), out.String())
	}
	cancel(&interruptedError{syscall.SIGINT})
	if code := run(ctx, []string{"--socket", d.socket, "top"}, a); code != 0 {
		t.Errorf("exit %d after Ctrl-C", code)
	}
}

// What does not fit is counted, and the choice is always to be seen.
func TestTopScreen(t *testing.T) {
	s := &topScreen{width: 70, height: 9}
	var rows []topRow
	for i := range 10 {
		r := topRow{Session: session(), load: -1}
		r.ID = fmt.Sprintf("ses_%d", i)
		rows = append(rows, r)
	}
	s.update(rows)
	top := &topCommand{app: &app{getenv: func(string) string { return "" }}, sort: "age"}
	for i := range 12 {
		var b strings.Builder
		top.table(s.rows, s.choice()).write(&b)
		text := s.text(b.String(), top.sort, false)
		if want := fmt.Sprintf(">  ses_%d", min(i, 9)); !strings.Contains(text, want) || !strings.Contains(text, "… 7 more, ") || strings.Count(text, "\n") >= s.height {
			t.Errorf("%d: no %q in\n%s", i, want, text)
		}
		s.press("j")
	}
	// The chosen one has ended: the answer to what was asked is no answer any more.
	s.press("e")
	s.update(rows[:3])
	if do := s.press("y"); do != (topDeed{}) {
		t.Errorf("did %+v", do)
	}
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
		if got := wordColor(state); got != want {
			t.Errorf("%s: %d", state, got)
		}
	}
	for status, want := range map[client.CheckStatus]int{
		client.CheckOK: colorGreen, client.CheckFail: colorRed, client.CheckNA: colorGrey, client.CheckWarn: colorYellow,
	} {
		if got := wordColor(status); got != want {
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
	keys, path, err := testrig.Terminal()
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { keys.Close() })
	if err := unix.IoctlSetWinsize(int(keys.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 11, Col: 22}); err != nil {
		t.Fatal(err)
	}
	return keys, path
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
	if err := k.Close(); err != nil {
		t.Error(err)
	}
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
