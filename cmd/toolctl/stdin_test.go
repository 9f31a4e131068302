package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/tool"
)

// pipeOf gives the end of a pipe with this in it; its other end stays open where the
// text is to come later.
func pipeOf(t *testing.T, text string, open bool) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if !open {
		_ = w.Close()
	}
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	return r, w
}

func fileOf(t *testing.T, text string) *os.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "in")
	writeFile(t, name, text, 0o600)
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func device(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// What is no input never keeps a command from running, nor makes it wait; what is
// some is never dropped without a word.
func TestUnread(t *testing.T) {
	empty, _ := pipeOf(t, "", true)
	ended, _ := pipeOf(t, "", false)
	full, _ := pipeOf(t, "make test\n", true)
	last, _ := pipeOf(t, "make test\n", false)
	closed, _ := pipeOf(t, "x", false)
	_ = closed.Close()
	read := fileOf(t, "all of it")
	if _, err := io.ReadAll(read); err != nil {
		t.Fatal(err)
	}
	sockets, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	socket, other := os.NewFile(uintptr(sockets[0]), "socket"), os.NewFile(uintptr(sockets[1]), "socket")
	defer socket.Close()
	defer other.Close()
	if _, err := other.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		in   io.Reader
		want bool
	}{
		{"an open, empty pipe", empty, false},
		{"a pipe that has ended", ended, false},
		{"a pipe with text", full, true},
		{"a pipe with its last text", last, true},
		{"/dev/null", device(t, "/dev/null"), false},
		{"a terminal", device(t, "/dev/ptmx"), false},
		{"nothing", closed, false},
		{"no file", strings.NewReader("x"), false},
		{"a file", fileOf(t, "x"), true},
		{"an empty file", fileOf(t, ""), false},
		{"a file that was read", read, false},
		{"a socket with text", socket, true},
		{"a socket without", other, false},
	} {
		if got := unread(tt.in); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
		for _, args := range []string{"run -- bash", "call review bash {}"} {
			d := startFake(t, runHandlers(stream(bashDone("", exited(0)))))
			var stderr strings.Builder
			a := &app{stdin: tt.in, stdout: io.Discard, stderr: &stderr, getenv: func(string) string { return "" }}
			code := run(t.Context(), append([]string{"--socket", d.socket}, strings.Fields(args)...), a)
			said := strings.Contains(stderr.String(), "nothing was run: pass it on with -i, or leave it out with </dev/null")
			if asked := len(d.asked("POST", "")); (code == 125) != tt.want || said != tt.want || (asked == 0) != tt.want {
				t.Errorf("%s: %s: exit %d, %q, %d requests", tt.name, args, code, &stderr, asked)
			}
		}
	}
}

// Input that comes while the command runs was not given to it either.
func TestUnreadAtTheEnd(t *testing.T) {
	for _, tt := range []struct {
		args string
		code int
		want int
	}{
		{"run -- bash", 0, 125},
		{"run -- bash", 3, 125},
		{"call review bash {}", 0, 125},
		{"call review read {}", 0, 0},
	} {
		r, w := pipeOf(t, "", true)
		d := startFake(t, runHandlers(func(rw http.ResponseWriter, req *http.Request) {
			_, _ = w.WriteString("make test\n")
			final := bashDone("", exited(tt.code))
			if strings.Contains(tt.args, "read") {
				final.Tool = "read"
			}
			stream(final)(rw, req)
		}))
		var stderr strings.Builder
		a := &app{stdin: r, stdout: io.Discard, stderr: &stderr, getenv: func(string) string { return "" }}
		code := run(t.Context(), append([]string{"--socket", d.socket}, strings.Fields(tt.args)...), a)
		if code != tt.want || (code == 125) != strings.Contains(stderr.String(), "the command did not get: pass it on with -i") {
			t.Errorf("%s: exit %d, %q", tt.args, code, &stderr)
		}
	}
}

func TestStdinIsPassedOn(t *testing.T) {
	for _, tt := range []struct {
		name, args, in string
		code           int
		want, stderr   string
	}{
		{"run", "run -i -- bash", "make test\n", 0, `{"command":"bash","stdin":"make test\n"}`, ""},
		{"run without any", "run -i -- bash", "", 0, `{"command":"bash"}`, ""},
		{"call", `call review bash {"command":"cat"} -i`, "a\x00ü", 0, `{"command":"cat","stdin":"a\u0000ü"}`, ""},
		{"as much as may be", "run -i -- bash", strings.Repeat("x", tool.MaxStdin), 0, fmt.Sprintf(`{"command":"bash","stdin":%q}`, strings.Repeat("x", tool.MaxStdin)), ""},
		{"more", "run -i -- bash", strings.Repeat("x", tool.MaxStdin+1), 125, "", "more than 1048576 bytes"},
		{"no text", "run -i -- bash", "\xff", 125, "", "not text in UTF-8"},
		{"twice", `call review bash {"command":"cat","stdin":"x"} -i`, "y", 2, "", "leave it or -i out"},
		{"another tool", `call review read {} -i`, "y", 2, "", "-i is for a command of bash"},
		{"as input", `call review bash - -i`, "{}", 2, "", "-i is for a command of bash"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := startFake(t, runHandlers(stream(bashDone("", exited(0)))))
			ctl(t, t.Context(), tt.in, append([]string{"--socket", d.socket}, strings.Fields(tt.args)...)...).want(t, tt.code, "", tt.stderr)
			asked := d.asked("POST", "/calls")
			if tt.want == "" {
				if len(d.asked("POST", "")) > 0 {
					t.Error("the daemon was asked")
				}
				return
			}
			var c client.CallCreate
			decode(t, asked[0].body, &c)
			var got, want map[string]string
			if err := errors.Join(json.Unmarshal(c.Input, &got), json.Unmarshal([]byte(tt.want), &want)); err != nil || len(got) != len(want) || got["stdin"] != want["stdin"] || got["command"] != want["command"] {
				t.Errorf("input %.200s, want %.200s; %v", c.Input, tt.want, err)
			}
		})
	}
}

// Ctrl-C ends the wait for input that does not come.
func TestStdinInterrupted(t *testing.T) {
	r, _ := pipeOf(t, "", true)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(&interruptedError{syscall.SIGINT})
	a := &app{stdin: r, stdout: io.Discard, stderr: io.Discard, getenv: func(string) string { return "" }}
	if code := run(ctx, []string{"--socket", t.TempDir() + "/none", "run", "-i", "--", "bash"}, a); code != 130 {
		t.Errorf("exit %d", code)
	}
}
