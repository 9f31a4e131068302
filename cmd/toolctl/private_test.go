package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toold/toold/client"
)

// TestMain makes this binary a toold for the tests of the private daemon.
func TestMain(m *testing.M) {
	if mode := os.Getenv("TOOLCTL_TEST_TOOLD"); mode != "" {
		os.Exit(fakeToold(mode, os.Args[1:]))
	}
	// What sessions are made with does not depend on who runs the tests.
	_ = os.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	os.Exit(m.Run())
}

// fakeToold serves one session on its socket until standard input closes.
func fakeToold(mode string, args []string) int {
	fs := flag.NewFlagSet("toold", flag.ContinueOnError)
	socket := fs.String("socket", "", "")
	state := fs.String("state-dir", "", "")
	ephemeral := fs.Bool("ephemeral", false, "")
	fs.String("run-dir", "", "")
	metrics := fs.String("metrics-listen", "none", "")
	uids := fs.Int("uid-base", 0, "")
	if err := fs.Parse(args); err != nil || !*ephemeral || *metrics != "" || *uids < privateUIDBase || mode == "broken" {
		fmt.Fprintf(os.Stderr, "fake toold: %s %v %v\n", mode, args, err)
		return 1
	}
	if err := errors.Join(os.Mkdir(*state, 0o700), os.Mkdir(filepath.Dir(*socket), 0o700)); err != nil {
		return 1
	}
	mux := http.NewServeMux()
	handlers := runHandlers(stream(bashDone("", exited(7)), client.Output{Stream: "stdout", Text: "private"}))
	if mode == "asks" {
		handlers = asking(own(approval("apr_1", "git push")))
	}
	for pattern, h := range handlers {
		mux.HandleFunc(pattern, h)
	}
	asked := 0
	mux.HandleFunc("GET /v1/ready", func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked < 3 {
			answer(w, http.StatusServiceUnavailable, client.Health{Status: "starting"})
			return
		}
		answer(w, http.StatusOK, client.Health{Status: "ok"})
	})
	l, err := net.Listen("unix", *socket)
	if err != nil {
		return 1
	}
	go func() { _ = http.Serve(l, mux) }()
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// withToold puts the fake in PATH and gives the directory where toolctl makes
// its temporary ones.
func withToold(t *testing.T, mode string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin, tmp := t.TempDir(), t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nTOOLCTL_TEST_TOOLD=%s exec %s \"$@\"\n", mode, self)
	writeFile(t, filepath.Join(bin, "toold"), script, 0o755)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("TMPDIR", tmp)
	return tmp
}

// privately runs toolctl as on a host where no daemon listens.
func privately(t *testing.T, args ...string) result {
	t.Helper()
	if _, err := os.Stat(client.DefaultSocket); !errors.Is(err, fs.ErrNotExist) { // or one that only others may reach
		t.Skip("a daemon of this host may listen at " + client.DefaultSocket)
	}
	var out, errOut bytes.Buffer
	asRoot := func() machine { // who alone may start one; this one is not real
		m := thisMachine()
		m.root = true
		return m
	}
	a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &errOut, getenv: func(string) string { return "" }, machine: asRoot}
	return result{run(t.Context(), args, a), out.String(), errOut.String()}
}

func TestPrivateDaemon(t *testing.T) {
	tmp := withToold(t, "ok")
	privately(t, "run", "--", "true").want(t, 7, "private", "")
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestPrivateDaemonBroken(t *testing.T) {
	tmp := withToold(t, "broken")
	privately(t, "run", "--", "true").want(t, 125, "", "fake toold: broken")
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestPrivateDaemonMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	privately(t, "run", "--", "true").want(t, 125, "", "no toold program beside toolctl or in PATH")
}

// A long TMPDIR leaves no room for a socket's name.
func TestPrivateDirIsShort(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", long)
	dir, err := privateDir()
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(dir)
	if len(dir) > maxSocketDir {
		t.Errorf("%s is too long", dir)
	}
}

// What a killed toolctl left is removed by the next one; what is in use, young or
// somebody else's is not.
func TestSweep(t *testing.T) {
	tmp := t.TempDir()
	mkdir := func(name string, lock bool, age time.Duration) string {
		dir := filepath.Join(tmp, name)
		if err := os.MkdirAll(filepath.Join(dir, "run"), 0o700); err != nil {
			t.Fatal(err)
		}
		if lock {
			writeFile(t, filepath.Join(dir, "run", "lock"), "", 0o600)
		}
		then := time.Now().Add(-age)
		if err := os.Chtimes(dir, then, then); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	left, used, young, old := mkdir(privatePrefix+"left", true, 2*startingTime), mkdir(privatePrefix+"used", true, 2*startingTime), mkdir(privatePrefix+"young", false, 0), mkdir(privatePrefix+"old", false, 2*startingTime)
	other := mkdir("other", true, 2*startingTime)
	lock, err := os.Open(filepath.Join(used, "run", "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(tmp, privatePrefix+"link")
	if err := os.Symlink(other, link); err != nil {
		t.Fatal(err)
	}
	sweepPrivateDirs(tmp)
	for dir, want := range map[string]bool{left: false, old: false, used: true, young: true, other: true, link: true} {
		if _, err := os.Lstat(dir); (err == nil) != want {
			t.Errorf("%s: there %v, want %v", filepath.Base(dir), err == nil, want)
		}
	}
}

func TestUIDClaims(t *testing.T) {
	seen := make(map[int]bool)
	for range 50 {
		c, err := claimUIDs()
		if err != nil {
			t.Fatal(err)
		}
		defer c.release()
		if seen[c.base] || c.base < privateUIDBase || c.base >= privateUIDBase+privateUIDs || c.base%uidRange != 0 {
			t.Errorf("base %d", c.base)
		}
		seen[c.base] = true
	}
}

func TestLastLog(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := &privateDaemon{log: f}
	if s := p.lastLog(); s != "" {
		t.Errorf("of nothing: %q", s)
	}
	fmt.Fprintln(f, strings.Repeat("x", 2*maxLog), "the end")
	if s := p.lastLog(); len(s) > maxLog || !strings.HasSuffix(s, "x the end") {
		t.Errorf("%d bytes", len(s))
	}
}

// What is nowhere else is not removed with a private daemon's directory.
func TestPrivateDirKeeps(t *testing.T) {
	files := []string{"state/worktrees/apply/ses_1/committed"}
	for _, name := range notBack {
		files = append(files, name+"/ses_1.tar")
	}
	for _, name := range files {
		dir := filepath.Join(t.TempDir(), "private")
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := removePrivateDir(dir); err == nil || !strings.Contains(err.Error(), dir+" was not removed: ") {
			t.Errorf("%s: got %v", name, err)
		}
		if err := os.Remove(file); err != nil {
			t.Errorf("it is gone: %v", err)
		}
		if err := removePrivateDir(dir); err != nil {
			t.Error(err)
		}
	}
}
