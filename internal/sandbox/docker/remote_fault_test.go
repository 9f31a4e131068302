package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/near"
	"github.com/toold/toold/internal/sandbox/state"
	"github.com/toold/toold/internal/testrig"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// copiedSandbox is what is left of a session whose worktree was copied to an Engine.
func copiedSandbox(t *testing.T, host string) (r *Remote, rec sandbox.Record, worktree string) {
	t.Helper()
	d := fakeDriver(t, host)
	d.dir = remoteDir(d.cfg.StateDir)
	must(t, os.MkdirAll(d.sandboxesDir(), 0o700))
	r = newRemote(d)
	worktree = t.TempDir()
	must(t, os.WriteFile(filepath.Join(worktree, "file"), []byte("old"), 0o600))
	spec := plainSpec()
	dir, err := os.Open(worktree)
	must(t, err)
	t.Cleanup(func() { dir.Close() })
	spec.Worktree = sandbox.Worktree{Mode: "bind", Target: sandbox.Workspace, Source: dir}
	p, kept := d.place(spec.SessionID), &record{
		Base:      near.Base{Base: state.Base{Record: sandbox.Record{ID: spec.ID}}},
		Container: strings.Repeat("b", 64), Engine: host,
	}
	must(t, p.claim(kept))
	_, err = r.trees.Send(t.Context(), p.Dir, &spec.Worktree, func(archive io.Reader) error {
		_, err := io.Copy(io.Discard, archive)
		return err
	})
	must(t, err)
	return r, kept.Record, worktree
}

// changed is a worktree as an Engine gives it.
func changed(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	must(t, w.WriteHeader(&tar.Header{Name: "workspace/", Typeflag: tar.TypeDir, Mode: 0o755}))
	must(t, w.WriteHeader(&tar.Header{Name: "workspace/file", Typeflag: tar.TypeReg, Mode: 0o600, Size: 3}))
	_, err := io.WriteString(w, "new")
	must(t, err)
	must(t, w.Close())
	return b.Bytes()
}

func stopped(w http.ResponseWriter, r *http.Request) {
	says(200, `{"Id":"b","State":{"Running":false},"Config":{}}`)(w, r)
}

// A worktree comes back also when that takes longer than whoever ends the session has
// time for, and once when two end it.
func TestCopyBackTakesItsTime(t *testing.T) {
	archive := changed(t)
	var at, most atomic.Int32
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun := make(chan struct{})
	give := func(w http.ResponseWriter, r *http.Request) {
		n := at.Add(1)
		defer at.Add(-1)
		if n > most.Load() {
			most.Store(n)
		}
		if n == 1 && ctx.Err() == nil {
			cancel() // whoever ends the session has no more time
			close(begun)
		}
		time.Sleep(300 * time.Millisecond) // for the other to come, if nothing holds it
		w.Header().Set("X-Docker-Container-Path-Stat", base64.StdEncoding.EncodeToString([]byte(`{"name":"workspace"}`)))
		_, _ = w.Write(archive)
	}
	r, rec, worktree := copiedSandbox(t, fakeEngine(t, map[string]http.HandlerFunc{"bbb/json": stopped, "/archive": give}))
	var both sync.WaitGroup
	both.Go(func() {
		if err := r.Destroy(ctx, rec); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-begun:
	case <-time.After(time.Minute):
		t.Fatal("nothing is copied back")
	}
	both.Go(func() {
		if err := r.Destroy(t.Context(), rec); err != nil {
			t.Error(err)
		}
	})
	both.Wait()
	if got, err := os.ReadFile(filepath.Join(worktree, "file")); err != nil || string(got) != "new" {
		t.Errorf("got %q, %v", got, err)
	}
	if most.Load() != 1 {
		t.Errorf("%d copied back at a time", most.Load())
	}
	for _, dir := range []string{r.d.sandboxesDir(), filepath.Join(r.d.dir, "changes")} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: %v, %v", dir, left, err)
		}
	}
}

// What one Engine has is not looked for at another.
func TestOtherEngine(t *testing.T) {
	r, _, _ := copiedSandbox(t, fakeEngine(t, nil))
	cfg := r.d.cfg
	remote := func(host string) error {
		cfg.Host = host
		r, err := NewRemote(RemoteConfig{Config: cfg})
		if err == nil {
			must(t, r.Close())
		}
		return err
	}
	rec, err := r.d.place("ses_fault").read()
	must(t, err)
	rec.Engine = "ssh://one"
	must(t, r.d.place("ses_fault").Write(rec))
	must(t, remote("ssh://one"))
	if err := remote("ssh://another"); err == nil || !strings.Contains(err.Error(), `"ssh://one"`) || !strings.Contains(err.Error(), "ses_fault") {
		t.Errorf("another Engine: %v", err)
	}
	cfg.Host = ""
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), `"ssh://one"`) {
		t.Errorf("the Engine here: %v", err)
	}
	must(t, r.d.place("ses_fault").Remove())
	d, err := New(cfg)
	must(t, err)
	defer d.Close()
	rec.BootID = "an earlier one"
	must(t, d.place("ses_fault").claim(rec))
	must(t, remote("ssh://another"))
	rec.BootID = state.BootID()
	must(t, d.place("ses_fault").Write(rec))
	if err := remote("ssh://another"); err == nil || !strings.Contains(err.Error(), "unset DOCKER_HOST") {
		t.Errorf("a live one here: %v", err)
	}
}

// A container that an Engine never gets rid of is given up, and why is told, also when
// the time is over in the middle of a request.
func TestRemoveConflict(t *testing.T) {
	id := strings.Repeat("b", 64)
	remove := func(ctx context.Context, limit time.Duration, asked func(n int32)) error {
		t.Helper()
		var n atomic.Int32
		d := fakeDriver(t, fakeEngine(t, map[string]http.HandlerFunc{id: func(w http.ResponseWriter, r *http.Request) {
			asked(n.Add(1))
			says(409, `{"message":"removal is already in progress"}`)(w, r)
		}}))
		done := make(chan error, 1)
		go func() { done <- d.engine.removeWithin(ctx, id, limit) }()
		select {
		case err := <-done:
			return err
		case <-time.After(time.Minute):
			t.Fatal("it is waited for without end")
			return nil
		}
	}
	if err := remove(t.Context(), 50*time.Millisecond, func(int32) {}); err == nil {
		t.Error("no error")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	err := remove(ctx, time.Hour, func(n int32) {
		if n == 3 {
			cancel(errors.New("nobody waits"))
		}
	})
	if err == nil || !strings.Contains(err.Error(), "in progress") || !strings.Contains(err.Error(), "nobody waits") {
		t.Errorf("got %v", err)
	}
}

// No name of an image leads to something else of the Engine's.
func TestNoImageNames(t *testing.T) {
	var asked atomic.Int32
	ask := func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		says(200, `{}`)(w, r)
	}
	d := fakeDriver(t, fakeEngine(t, map[string]http.HandlerFunc{"/containers/x/json": ask, "/containers/x": ask}))
	for _, ref := range []string{"../containers/x", "a/../../containers/x", "a/./../../containers/x/."} {
		if _, err := d.Images().Acquire(t.Context(), ref); err == nil {
			t.Errorf("%s is an image", ref)
		}
		if err := d.Images().Remove(t.Context(), ref); err == nil {
			t.Errorf("%s was removed", ref)
		}
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("the Engine was asked %d times about a container", n)
	}
}

// An image is found as a session says which it has: by its name and its own digest, which
// no registry knows.
func TestImageOfSession(t *testing.T) {
	own := "sha256:" + strings.Repeat("a", 64) // the fake Engine's
	d := fakeDriver(t, fakeEngine(t, map[string]http.HandlerFunc{"/images/tools:1@" + own + "/json": says(404, `{"message":"No such image"}`)}))
	held, err := d.Images().Acquire(t.Context(), "tools:1@"+own)
	if err != nil {
		t.Fatal(err)
	}
	if held.Digest != own {
		t.Errorf("got %s", held.Digest)
	}
}

// An answer that is all header is given up.
func TestEndlessHeader(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	ended := make(chan int, 1)
	go func() {
		_, _ = far.Read(make([]byte, 4096))
		n := 0
		for _, err := io.WriteString(far, "HTTP/1.1 101 UPGRADED\r\n"); err == nil; n += 1024 {
			_, err = io.WriteString(far, "X: "+strings.Repeat("x", 1019)+"\r\n")
		}
		ended <- n
	}()
	e := &engine{host: "test"}
	if _, err := e.upgrade(t.Context(), near, "/x"); err == nil {
		t.Error("no error")
	}
	near.Close()
	if n := <-ended; n > 2*maxHeader {
		t.Errorf("%d bytes of a header were read", n)
	}
}

// Why ssh has ended is told.
func TestSSHSays(t *testing.T) {
	bin := t.TempDir()
	must(t, testrig.WriteProgram(filepath.Join(bin, "ssh"), []byte("#!/bin/sh\necho Host key verification failed. >&2\nexit 255\n")))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	e, err := newRemoteEngine("ssh://engine.test", "")
	must(t, err)
	defer e.close()
	if _, err := e.version(t.Context()); err == nil || !strings.Contains(err.Error(), "Host key verification failed.") {
		t.Errorf("got %v", err)
	}
}

// watched says when something is written to it.
type watched struct {
	net.Conn
	once    sync.Once
	writing chan struct{}
}

func (w *watched) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.writing) })
	return w.Conn.Write(p)
}

// A sandbox is let go of also when its Engine takes nothing any more.
func TestCloseWhileStuck(t *testing.T) {
	pipe, engine := net.Pipe() // nobody reads the other end
	defer engine.Close()
	far := &watched{Conn: pipe, writing: make(chan struct{})}
	r := &Remote{d: fakeDriver(t, fakeEngine(t, nil))}
	s := newRemoteSandbox(r, &record{Container: strings.Repeat("c", 64)})
	receive := func(to io.Writer) error { return demultiplex(to, far) }
	near, err := s.conns.Carry(far, receive)
	must(t, err)
	_, err = near.Write([]byte("stuck"))
	must(t, err)
	select {
	case <-far.writing: // it is with the Engine's connection
	case <-time.After(time.Minute):
		t.Fatal("it is not carried")
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		must(t, err)
	case <-time.After(time.Minute):
		t.Fatal("it is not let go of")
	}
	if _, err := s.conns.Carry(far, receive); !errors.Is(err, net.ErrClosed) {
		t.Errorf("it is still open: %v", err)
	}
	near.Close()
}

// Of what is removed, the record goes last; what a killed remover left is nobody's.
func TestRecordGoesLast(t *testing.T) {
	d := fakeDriver(t, "")
	p := d.place("ses_one")
	must(t, p.claim(&record{Base: near.Base{Base: state.Begin(sandbox.ID{SessionID: "ses_one", Owner: "o"}, "")}}))
	// What cannot be removed stops it, wherever it stands among the others.
	at := p.File("worktree.json")
	must(t, os.MkdirAll(filepath.Join(at, "in"), 0o700))
	must(t, unix.Mount("tmpfs", filepath.Join(at, "in"), "tmpfs", 0, "size=4k"))
	err := p.Remove()
	must(t, unix.Unmount(filepath.Join(at, "in"), 0))
	if err == nil {
		t.Error("no error")
	}
	if list, err := d.places("o"); err != nil || len(list) != 1 {
		t.Errorf("the record is gone: %v, %v", list, err)
	}
	must(t, p.Remove())
	must(t, os.Mkdir(p.Path, 0o711))
	if list, err := d.places("o"); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := os.Stat(p.Path); !os.IsNotExist(err) {
		t.Errorf("an empty directory stays: %v", err)
	}
}
