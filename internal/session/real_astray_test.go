package session

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/fault"
)

// astrays are what may come to be at the path of a source, in a directory in/src, and the way back.
var astrays = map[string]struct {
	is         string
	host, back string
	mount      string // where a file system is mounted instead
}{
	"moved":            {is: "nothing is there", host: "mv in/src gone", back: "mv gone in/src"},
	"replaced":         {is: "another directory is there", host: "mv in/src gone; mkdir in/src", back: "rmdir in/src; mv gone in/src"},
	"a file":           {is: "a file or a link is there", host: "mv in/src gone; echo >in/src", back: "rm in/src; mv gone in/src"},
	"a link to it":     {is: "a file or a link is there", host: "mv in/src gone; ln -s ../gone in/src", back: "rm in/src; mv gone in/src"},
	"above it moved":   {is: "nothing is there", host: "mv in gone", back: "mv gone in"},
	"mounted over":     {is: "something is mounted there", mount: "in/src"},
	"mounted above it": {is: "nothing is there", mount: "in"},
	"removed":          {is: "nothing is there", host: "rm -r in/src"},
	"made anew":        {is: "another directory is there", host: "rm -r in/src; mkdir in/src"},
}

// astrayRig is a daemon that begins anew between the steps, and a session of it.
type astrayRig struct {
	applyRig
	h    *realHouse
	stop func() error
	top  string
	id   string
}

func (a *astrayRig) start() {
	var err error
	a.m, a.stop, err = a.h.open(slog.New(slog.NewTextHandler(logTo{a.t}, &slog.HandlerOptions{Level: slog.LevelError})))
	a.must(err)
}

// told sees whether a call, the notes, and the last event say what is at the path of the source.
func (a *astrayRig) told(when, is string) {
	a.t.Helper()
	c := realCall(a.t, a.m, a.id, "bash", object{"command": "true"})
	if got := strings.Contains(c.Output, "moved or removed"); got != (is != "") || !strings.Contains(c.Output, is) {
		a.t.Errorf("%s: a call says %q", when, c.Output)
	}
	v, err := a.m.Get(a.t.Context(), alice, a.id)
	a.must(err)
	notes := slices.DeleteFunc(slices.Clone(v.Notes), func(n string) bool { return !strings.Contains(n, "moved or removed") })
	if is == "" && len(notes) > 0 || is != "" && (len(notes) != 1 || !strings.Contains(notes[0], is) || !strings.Contains(notes[0], "put ")) {
		a.t.Errorf("%s: notes are %q", when, v.Notes)
	}
	events, err := a.m.Events.Events(a.t.Context(), alice, event.Filter{Session: a.id, Type: client.EventWorktreeSource, Stored: true})
	a.must(err)
	last := "none"
	for e := range events {
		if e.Type == client.EventWorktreeSource { // and not the end of what is stored
			last = string(e.Data)
		}
	}
	if is != "" && !strings.Contains(last, `"is":"`+is+`"`) || is == "" && last != "none" && strings.Contains(last, `"is"`) {
		a.t.Errorf("%s: the last event says %s", when, last)
	}
}

// TestRealAstray: where somebody moves, removes or covers the source of a session, each call and each
// request about its changes says so, what to do next can be done, and all is well when it is back;
// also where no daemon ran meanwhile.
func TestRealAstray(t *testing.T) {
	h := newRealHouse(t)
	a := &astrayRig{applyRig: applyRig{t: t}, h: h, top: source(t)}
	a.start()
	t.Cleanup(func() { a.must(errors.Join(a.m.EndAll(context.Background()), a.stop())) })
	n := 0
	for _, mode := range []client.WorktreeMode{client.WorktreeBind, client.WorktreeOverlay} {
		for _, name := range slices.Sorted(maps.Keys(astrays)) {
			n++
			a.astray(string(mode)+", "+name, name, mode, n%3 == 0)
		}
	}
}

func (a *astrayRig) astray(what, name string, mode client.WorktreeMode, restart bool) {
	to, t := astrays[name], a.t
	dir, err := os.MkdirTemp(a.top, "")
	a.must(err)
	a.must(os.Chmod(dir, 0o755))
	a.src = dir + "/in/src"
	host := func(script string) {
		t.Helper()
		cmd := exec.Command("sh", "-ec", script)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v %s", script, err, out)
		}
	}
	host("mkdir -p in/src; echo old >in/src/old; chown -R 1000:1000 .")
	v, err := a.m.Create(t.Context(), owner, client.SessionCreate{Worktree: client.Worktree{Source: a.src, Mode: mode}, IdleTimeout: -1})
	a.must(err)
	a.id = v.ID
	a.bash(a.id, "echo new >new; echo more >>old")
	a.told(what+", before", "")
	if mode == client.WorktreeOverlay { // which keeps what the session began with
		if got := a.changed(a.id); !slices.Equal(got, []string{"new", "old"}) {
			t.Errorf("%s: changed are %q", what, got)
		}
	}
	if restart {
		a.must(a.stop())
	}
	switch {
	case to.mount != "":
		at := filepath.Join(dir, to.mount)
		a.must(unix.Mount("tmpfs", at, "tmpfs", 0, "size=1m"))
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	default:
		host(to.host)
	}
	if restart {
		a.start()
	}
	a.told(what, to.is)
	if mode == client.WorktreeOverlay {
		a.astrayTrees(what, to.is)
	}
	a.told(what+", again", to.is)
	switch {
	case to.mount != "":
		a.must(unix.Unmount(filepath.Join(dir, to.mount), unix.MNT_DETACH))
	case to.back == "":
		a.end(a.id)
		return
	default:
		host(to.back)
	}
	a.told(what+", back", "")
	if mode == client.WorktreeOverlay {
		a.apply(a.id, client.ApplyRequest{})
	}
	a.holds("new", "new\n")
	a.holds("old", "old\nmore\n")
	a.end(a.id)
}

// astrayTrees sees what is said about the changes of a session whose source is astray.
func (a *astrayRig) astrayTrees(what, is string) {
	t := a.t
	t.Helper()
	r, err := a.m.trees.Diff(t.Context(), owner, a.id, client.DiffQuery{})
	a.must(err)
	patch, err := io.ReadAll(r)
	a.must(errors.Join(err, r.Close()))
	s := r.(interface {
		SourceAstray() string
		Stale() int
	})
	if got := s.SourceAstray(); got != is || s.Stale() > 0 || !strings.Contains(string(patch), "\n+new\n") || !strings.Contains(string(patch), "\n old\n+more\n") {
		t.Errorf("%s: the patch says %q, and has, but for %d,\n%s", what, got, s.Stale(), patch)
	}
	c, err := a.m.trees.Changes(t.Context(), owner, a.id, client.DiffQuery{})
	a.must(err)
	if c.SourceAstray != is || c.Files != 2 || c.Added != 2 || c.Removed != 0 {
		t.Errorf("%s: changes are %+v", what, c)
	}
	for _, op := range []string{"apply", "apply --dry-run", "checkpoint", "fork"} {
		i := slices.IndexFunc(hindered, func(h struct {
			name string
			do   func(ctx context.Context, m *Manager, id string) error
		},
		) bool {
			return h.name == op
		})
		err := hindered[i].do(t.Context(), a.m, a.id)
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.Conflict || !strings.Contains(f.Error(), is) || !strings.Contains(f.Hint, "back") {
			t.Errorf("%s, %s: %v", what, op, err)
		}
	}
}

// TestRealAstrayOver: of a session that is over, what it has written can still be shown, and the words
// about its changes name what helps.
func TestRealAstrayOver(t *testing.T) {
	a := newApplyRig(t)
	a.write("old", "old\n")
	a.write("gone", "gone\n")
	a.host("d", "echo 1 >f; echo 2 >g")
	id := a.session("s")
	a.bash(id, "echo new >new; echo more >>old; rm gone; mkdir dir; echo in >dir/in; ln -s new link; mv d e; echo 3 >e/f")
	a.changed(id) // what it began with is kept
	a.end(id)
	a.must(os.Rename(a.src, a.src+"-gone"))
	patch, stale := a.patch(id, client.DiffQuery{})
	for _, want := range []string{"\n+new\n", "\n old\n+more\n", "\n+in\n", "b/link\n", "\n+3\n"} {
		if !strings.Contains(string(patch), want) || stale != 0 {
			t.Errorf("the patch, without %d, lacks %q:\n%s", stale, want, patch)
		}
	}
	c, err := a.m.trees.Changes(t.Context(), owner, id, client.DiffQuery{})
	a.must(err)
	if c.SourceAstray != "nothing is there" || c.Added != 4 {
		t.Errorf("changes are %+v", c)
	}
	for _, op := range hindered {
		switch op.name {
		case "apply --dry-run", "apply", "fork", "discard a path":
			err := op.do(t.Context(), a.m, id)
			var f *fault.Error
			if !errors.As(err, &f) || f.Kind != fault.Conflict || !strings.Contains(f.Error(), "nothing is there") || !strings.Contains(f.Hint, "back") {
				t.Errorf("%s: %v", op.name, err)
			}
		}
	}
	a.must(os.Rename(a.src+"-gone", a.src))
	a.apply(id, client.ApplyRequest{})
	a.holds("new", "new\n")
	a.holds("old", "old\nmore\n")
	if _, err := os.Stat(a.src + "/gone"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("gone is there: %v", err)
	}
}

// TestRealAstrayBack: a source that comes back while a look at the changes of a session that is over
// begins makes neither a patch that adds what is there, nor one that says nothing of what it lacks.
func TestRealAstrayBack(t *testing.T) {
	a := newApplyRig(t)
	a.write("old", "old\n")
	a.write("gone", "gone\n")
	id := a.session("s")
	a.bash(id, "echo new >new; echo more >>old; rm gone")
	a.changed(id) // what it began with is kept
	a.end(id)
	away := a.src + "-gone"
	for _, list := range []bool{false, true} {
		a.must(os.Rename(a.src, away))
		back := sync.OnceFunc(func() { a.must(os.Rename(away, a.src)) })
		a.m.trees.Step = func(name string) {
			if name == "opened" {
				back()
			}
		}
		if list {
			c, err := a.m.trees.Changes(t.Context(), owner, id, client.DiffQuery{})
			a.must(err)
			if c.SourceAstray != "nothing is there" || c.Added != 2 || c.Removed != 0 {
				t.Errorf("changes are %+v", c)
			}
		} else {
			r, err := a.m.trees.Diff(t.Context(), owner, id, client.DiffQuery{})
			a.must(err)
			patch, err := io.ReadAll(r)
			a.must(errors.Join(err, r.Close()))
			if got := r.(interface{ SourceAstray() string }).SourceAstray(); got != "nothing is there" || !strings.Contains(string(patch), "\n old\n+more\n") {
				t.Errorf("the patch says %q, and is\n%s", got, patch)
			}
		}
		a.m.trees.Step = func(string) {}
		if _, err := os.Stat(away); err == nil {
			t.Fatal("the source has not come back")
		}
	}
	a.apply(id, client.ApplyRequest{})
	a.holds("old", "old\nmore\n")
}
