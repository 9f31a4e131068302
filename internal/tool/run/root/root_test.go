package root

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/needs"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(helperEnv); role != "" {
		os.Exit(helper(role))
	}
	goleak.VerifyTestMain(m)
}

// newRoot gives a Root over a new directory, with the ids of the test.
func newRoot(t *testing.T) (*Root, string) {
	t.Helper()
	dir := t.TempDir()
	return openRoot(t, Config{Dir: dir, UID: -1}), dir
}

func openRoot(t *testing.T, c Config) *Root {
	t.Helper()
	needs.OpenAt2(t)
	r, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

// replace begins, reads and commits.
func replace(t *testing.T, r *Root, path, content string) (*Committed, error) {
	t.Helper()
	ctx := t.Context()
	p, err := r.Begin(ctx, path, BeginOptions{Parents: true})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	if _, err := p.ReadOld(ctx, 1<<20); err != nil {
		return nil, err
	}
	return p.Commit(ctx, []byte(content), CommitOptions{})
}

func TestResolve(t *testing.T) {
	r, dir := newRoot(t)
	put(t, dir+"/a/b/file", "x")
	put(t, dir+"/top", "x")
	link(t, "/a/b", dir+"/abs")
	link(t, "b/file", dir+"/a/rel")
	link(t, "../../../../../../a/rel", dir+"/a/b/up")
	link(t, "loop2", dir+"/loop1")
	link(t, "loop1", dir+"/loop2")
	link(t, "/nowhere/at/all", dir+"/dangling")
	link(t, "/a", dir+"/bad\xffname")
	if err := os.Mkdir(dir+"/latin\xe9", 0o755); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		path, want string
		exists     bool
		code       Code
	}{
		{"/", "/", true, ""},
		{"//", "/", true, ""},
		{"/.", "/", true, ""},
		{"/..", "/", true, ""},
		{"/../../../etc/../top", "", false, InvalidPath},
		{"/../../../top", "/top", true, ""},
		{"/a/", "/a", true, ""},
		{"/a//b/./file", "/a/b/file", true, ""},
		{"/a/b/../../top", "/top", true, ""},
		{"/abs/file", "/a/b/file", true, ""},
		{"/abs/../b/file", "/a/b/file", true, ""},
		{"/abs/..", "/a", true, ""},
		{"/a/rel", "/a/b/file", true, ""},
		{"/a/b/up", "/a/b/file", true, ""},
		{"/new", "/new", false, ""},
		{"/a/new", "/a/new", false, ""},
		{"/abs/new", "/a/b/new", false, ""},
		{"/abs/x/y//z", "/a/b/x/y/z", false, ""},
		{"/abs/./new", "/a/b/new", false, ""},
		{"/bad\xffname/b", "/a/b", true, ""},
		{"/latin\xe9", "", false, InvalidPath},
		{"/latin\xe9/new", "", false, InvalidPath},
		{"/new/", "", false, NotExist},
		{"/x/../top", "", false, InvalidPath},
		{"/x/y/../../top", "", false, InvalidPath},
		{"/top/", "", false, InvalidPath},
		{"/top/x", "", false, InvalidPath},
		{"/loop1", "", false, InvalidPath},
		{"/loop1/x", "", false, InvalidPath},
		{"/dangling", "", false, InvalidPath},
		{"/dangling/x", "", false, InvalidPath},
		{"", "", false, InvalidPath},
		{"relative", "", false, InvalidPath},
		{"/nul\x00byte", "", false, InvalidPath},
		{"/" + strings.Repeat("n", 255), "/" + strings.Repeat("n", 255), false, ""},
		{"/" + strings.Repeat("n", 256), "", false, InvalidPath},
		{strings.Repeat("/a", 2048), "", false, InvalidPath},
		{strings.Repeat("/.", 2047) + "/", "/", true, ""},
	}
	for _, tt := range tests {
		got, err := r.Resolve(t.Context(), tt.path)
		if CodeOf(err) != tt.code || (err != nil) != (tt.code != "") {
			t.Errorf("Resolve(%.60q) error = %v, want code %q", tt.path, err, tt.code)
			continue
		}
		if got.Path != tt.want || got.Exists != tt.exists {
			t.Errorf("Resolve(%.60q) = %q, exists %v; want %q, %v", tt.path, got.Path, got.Exists, tt.want, tt.exists)
		}
	}
}

func TestResolveSystemPaths(t *testing.T) {
	r := openRoot(t, Config{Dir: "/", UID: -1})
	for _, path := range []string{
		"/proc/self/root/etc", "/proc/self/root/..", "/proc/1/root", "/proc/self/cwd", "/proc/self/exe",
		"/dev/fd/0", "/dev/stdin", "/proc/thread-self/fd/0", "/proc/self/fd/0", "/proc/1/fd/0",
		"/proc/self/environ", "/proc/self", "/proc/self/task", "/proc/thread-self/maps",
	} {
		if info, err := r.Resolve(t.Context(), path); CodeOf(err) != InvalidPath && CodeOf(err) != Denied {
			t.Errorf("Resolve(%q) = %+v, %v; want invalid_path", path, info, err)
		}
	}
	info, err := r.Resolve(t.Context(), "/proc/version")
	if err != nil || info.Path != "/proc/version" || info.Kind != KindFile {
		t.Errorf("Resolve(/proc/version) = %+v, %v", info, err)
	}
}

func TestOpenKinds(t *testing.T) {
	r, dir := newRoot(t)
	put(t, dir+"/file", "content")
	if err := unix.Mkfifo(dir+"/fifo", 0o666); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: dir + "/sock"}); err != nil {
		t.Fatal(err)
	}
	link(t, "/file", dir+"/link")
	for path, want := range map[string]Code{
		"/file": "", "/fifo": NotRegular, "/sock": NotRegular, "/": NotRegular,
		"/link": Stale, "/missing": NotExist,
	} {
		f, err := r.Open(t.Context(), path)
		if CodeOf(err) != want || (err != nil) != (want != "") {
			t.Errorf("Open(%q) error = %v, want code %q", path, err, want)
		}
		if err != nil {
			continue
		}
		data, err := f.ReadAll(t.Context(), 7)
		if string(data) != "content" || err != nil {
			t.Errorf("ReadAll = %q, %v", data, err)
		}
		f.Close()
	}
	dev := openRoot(t, Config{Dir: "/", UID: -1})
	for _, path := range []string{"/dev/null", "/dev/zero", "/dev/tty", "/dev"} {
		if _, err := dev.Open(t.Context(), path); CodeOf(err) != NotRegular && CodeOf(err) != NotExist {
			t.Errorf("Open(%q) error = %v, want not_regular_file", path, err)
		}
	}
}

func TestReadAllLimit(t *testing.T) {
	r, dir := newRoot(t)
	put(t, dir+"/file", "12345678")
	if err := os.Truncate(dir+"/file", 1<<40); err != nil {
		t.Fatal(err)
	}
	f, err := r.Open(t.Context(), "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.ReadAll(t.Context(), 1<<20); CodeOf(err) != TooLarge {
		t.Errorf("ReadAll of a sparse file: %v, want too_large", err)
	}
}

func TestReplace(t *testing.T) {
	r, dir := newRoot(t)
	if _, err := replace(t, r, "/d1/d2/new", "one"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir+"/d1/d2/new", 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(dir+"/d1/d2/new", "user.note", []byte("kept"), 0); err != nil && err != unix.EOPNOTSUPP {
		t.Fatal(err)
	}
	if _, err := replace(t, r, "/d1/d2/new", "two"); err != nil {
		t.Fatal(err)
	}
	got, _ := os.ReadFile(dir + "/d1/d2/new")
	st, err := os.Stat(dir + "/d1/d2/new")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != "two" || st.Mode() != 0o755 {
		t.Errorf("content %q, mode %v", got, st.Mode())
	}
	buf := make([]byte, 16)
	if n, err := unix.Getxattr(dir+"/d1/d2/new", "user.note", buf); err == nil && string(buf[:n]) != "kept" {
		t.Errorf("xattr %q", buf[:n])
	} else if err != nil && err != unix.EOPNOTSUPP {
		t.Errorf("xattr: %v", err)
	}
	if names, _ := os.ReadDir(dir + "/d1/d2"); len(names) != 1 {
		t.Errorf("files left: %v", names)
	}
}

func TestCommitStale(t *testing.T) {
	swap := map[string]func(path string){
		"rewritten":  func(p string) { os.WriteFile(p, []byte("OLD"), 0o644) },
		"removed":    func(p string) { os.Remove(p) },
		"renamed on": func(p string) { os.WriteFile(p+"2", []byte("old"), 0o644); os.Rename(p+"2", p) },
		"symlinked":  func(p string) { os.Remove(p); os.Symlink("/other", p) },
		"directory":  func(p string) { os.Remove(p); os.Mkdir(p, 0o755) },
	}
	for name, change := range swap {
		t.Run(name, func(t *testing.T) {
			r, dir := newRoot(t)
			put(t, dir+"/f", "old")
			put(t, dir+"/other", "other")
			p, err := r.Begin(t.Context(), "/f", BeginOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if _, err := p.ReadOld(t.Context(), 10); err != nil {
				t.Fatal(err)
			}
			change(dir + "/f")
			if _, err := p.Commit(t.Context(), []byte("new"), CommitOptions{}); CodeOf(err) != Stale {
				t.Errorf("Commit error = %v, want stale", err)
			}
			if got, _ := os.ReadFile(dir + "/other"); string(got) != "other" {
				t.Errorf("the link's target was changed: %q", got)
			}
			names, _ := filepath.Glob(dir + "/.toold-*")
			if len(names) > 0 {
				t.Errorf("left over: %v", names)
			}
		})
	}
	t.Run("created", func(t *testing.T) {
		r, dir := newRoot(t)
		p, err := r.Begin(t.Context(), "/f", BeginOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		put(t, dir+"/f", "theirs")
		if _, err := p.Commit(t.Context(), []byte("ours"), CommitOptions{}); CodeOf(err) != Stale {
			t.Errorf("Commit error = %v, want stale", err)
		}
		if got, _ := os.ReadFile(dir + "/f"); string(got) != "theirs" {
			t.Errorf("overwritten: %q", got)
		}
	})
}

var errEnough = errors.New("enough")

func contextWithCause(t *testing.T) (context.Context, context.CancelCauseFunc) {
	return context.WithCancelCause(t.Context())
}

func TestContext(t *testing.T) {
	r, dir := newRoot(t)
	put(t, dir+"/f", "x")
	p, err := r.Begin(t.Context(), "/f", BeginOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ctx, cancel := contextWithCause(t)
	cancel(errEnough)
	if _, err := r.Resolve(ctx, "/"); !errors.Is(err, errEnough) || CodeOf(err) != Aborted {
		t.Errorf("Resolve: %v, want the cause", err)
	}
	if _, err := p.Commit(ctx, nil, CommitOptions{}); !errors.Is(err, errEnough) {
		t.Errorf("Commit: %v, want the cause", err)
	}
}
