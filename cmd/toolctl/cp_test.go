package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/needs"
)

func copyHandlers(content string) map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"GET /v1/sessions":            answerWith(client.List[client.Session]{Items: []client.Session{session()}}),
		"GET /v1/sessions/{id}":       answerWith(session()),
		"GET /v1/sessions/{id}/files": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(content)) },
		"PUT /v1/sessions/{id}/files": answerWith(bashDone("", nil)),
	}
}

func TestCopyOut(t *testing.T) {
	d := startFake(t, copyHandlers("new\x00"))
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside")
	link := filepath.Join(dir, "link")
	old := filepath.Join(dir, "old")
	writeFile(t, outside, "untouched", 0o600)
	writeFile(t, old, "old", 0o640)
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from, to, file string
		mode           os.FileMode
	}{
		{"review:/etc/report", dir, filepath.Join(dir, "report"), 0o644},
		{"review:report", filepath.Join(dir, "x"), filepath.Join(dir, "x"), 0o644},
		{"ses_0123:report", old, old, 0o640}, // keeps the mode it had
		{"review:report", link, link, 0o644}, // replaces the link
	} {
		d.ctl("cp", c.from, c.to).want(t, 0, "", "")
		b, err := os.ReadFile(c.file)
		info, _ := os.Lstat(c.file)
		if err != nil || string(b) != "new\x00" || info.Mode() != c.mode {
			t.Errorf("cp %s %s: %q, %v, %v", c.from, c.to, b, info.Mode(), err)
		}
	}
	if b, _ := os.ReadFile(outside); string(b) != "untouched" {
		t.Errorf("a link was followed: %q", b)
	}
	if r := d.ctl("cp", "review:report", "-"); r.stdout != "new\x00" {
		t.Errorf("to standard output: %q", r.stdout)
	}
	noTemps(t, dir)
}

func TestCopyOutRefused(t *testing.T) {
	d := startFake(t, copyHandlers("new"))
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	d.ctl("cp", "review:report", fifo).want(t, 1, "", "not a regular file")
	d.ctl("cp", "review:/tmp/..", dir).want(t, 2, "", "no file name")
	d.ctl("cp", "review:", dir).want(t, 2, "", "name the file")
	d.ctl("cp", "review:a", filepath.Join(dir, "none", "x")).want(t, 1, "", "no such file")
	missing := copyHandlers("")
	missing["GET /v1/sessions/{id}/files"] = problemWith(404, client.CodeNotFound)
	startFake(t, missing).ctl("cp", "review:a", dir).want(t, 4, "", "copy a: it is so")
	noTemps(t, dir)
}

// A part of a file never takes the file's place.
func TestCopyOutCutShort(t *testing.T) {
	h := copyHandlers("")
	h["GET /v1/sessions/{id}/files"] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte("part"))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	dir := t.TempDir()
	old := filepath.Join(dir, "old")
	writeFile(t, old, "old", 0o600)
	startFake(t, h).ctl("cp", "review:a", old).want(t, 1, "", "copy a: ")
	if b, _ := os.ReadFile(old); string(b) != "old" {
		t.Errorf("got %q", b)
	}
	noTemps(t, dir)
}

func TestCopyIn(t *testing.T) {
	needs.SetIDBits(t)
	d := startFake(t, copyHandlers(""))
	file := filepath.Join(t.TempDir(), "a\nb")
	writeFile(t, file, "content", 0o600)
	if err := os.Chmod(file, 0o751|os.ModeSetuid|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	d.ctl("cp", file, "review:/tmp/x").want(t, 0, "", "")
	d.ctl("cp", file, "review:").want(t, 0, "", "")
	ctl(t, t.Context(), "from stdin", "--socket", d.socket, "cp", "-", "review:y").want(t, 0, "", "")
	puts := d.asked("PUT", "/files")
	for i, want := range []struct{ query, body string }{
		{"mode=0751&path=%2Ftmp%2Fx", "content"},
		{"mode=0751&path=a%0Ab", "content"},
		{"path=y", "from stdin"},
	} {
		if puts[i].query != want.query || string(puts[i].body) != want.body {
			t.Errorf("%d: %s %q", i, puts[i].query, puts[i].body)
		}
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	d.ctl("cp", fifo, "review:x").want(t, 1, "", "not a regular file")
	d.ctl("cp", "-", "review:").want(t, 2, "", "name the file")
}

func TestCopyInFailed(t *testing.T) {
	for _, c := range []struct {
		call client.Call
		code int
	}{
		{client.Call{Status: client.CallError, Error: &client.Error{Code: client.CodeDenied, Message: "read-only"}}, 3},
		{client.Call{Status: client.CallCompleted, IsError: true, Output: "read-only"}, 1},
	} {
		h := copyHandlers("")
		h["PUT /v1/sessions/{id}/files"] = answerWith(c.call)
		file := filepath.Join(t.TempDir(), "f")
		writeFile(t, file, "", 0o600)
		startFake(t, h).ctl("cp", file, "review:x").want(t, c.code, "", "copy to x: read-only")
	}
}

func TestSplitRemote(t *testing.T) {
	for arg, want := range map[string]string{
		"review:a": "review|a", "review:/a:b": "review|/a:b", "./a:b": "", "../a:b": "", "/a:b": "", "a/b:c": "", "file": "", ":x": "", "-": "",
	} {
		s, p, ok := splitRemote(arg)
		got := ""
		if ok {
			got = s + "|" + p
		}
		if got != want {
			t.Errorf("%s: %q, want %q", arg, got, want)
		}
	}
}

func writeFile(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func noTemps(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".toolctl") {
			t.Errorf("%s was left behind", e.Name())
		}
	}
}

// TestCopyWaits: who waits for a file hears that somebody must allow it.
func TestCopyWaits(t *testing.T) {
	h := copyHandlers("")
	var said screenText
	h["GET /v1/approvals"] = func(w http.ResponseWriter, r *http.Request) {
		mine, other := approval("apr_1", "x"), approval("apr_2", "x")
		mine.Tool = "file_get"
		answer(w, 200, client.List[client.Approval]{Items: []client.Approval{mine, other}})
	}
	h["GET /v1/sessions/{id}/files"] = func(w http.ResponseWriter, r *http.Request) {
		for !strings.Contains(said.String(), "admin can") && r.Context().Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		answerProblem(w, 403, client.CodeDenied, "rejected")
	}
	d := startFake(t, h)
	a := &app{stdout: io.Discard, stderr: &said, getenv: func(string) string { return "" }}
	code := run(t.Context(), []string{"--socket", d.socket, "cp", "review:/etc/x", filepath.Join(t.TempDir(), "x")}, a)
	result{code, "", said.String()}.want(t, 3, "", "toolctl: waiting for approval apr_1, expires in 10m\ntoolctl:   bash x (asked by config.toml:3: who pushes?)\n")
	result{code, "", said.String()}.want(t, 3, "", "\ntoolctl: copy /etc/x: rejected\n")
}
