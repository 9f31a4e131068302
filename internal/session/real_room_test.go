package session

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/cache"
	"github.com/toold/toold/internal/cache/builtin"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/session/room"
	"github.com/toold/toold/internal/testrig"
)

// TestRealOwnWriters: all that the daemon itself writes for somebody to the disk of its state directory
// is refused by name where hardly anything is left there, with nothing half done, and is done when there
// is room again.
func TestRealOwnWriters(t *testing.T) {
	a := newApplyRig(t)
	set := *a.m.settings.Load()
	set.Caches = cache.Settings{{Cache: builtin.Cache{Name: "own", Dirs: []builtin.Dir{{Name: "own"}}}, Path: "/caches/own", Mode: client.CacheCow, Size: 32 << 20}}
	a.m.Reload(set)
	// A moved directory is copied when it is applied, a removed file when it is discarded.
	top, ids := a.src, map[string]string{}
	for _, name := range []string{"live", "ended", "applied live", "applied ended"} {
		a.src = filepath.Join(top, name)
		a.must(errors.Join(os.Mkdir(a.src, 0o755), os.Chown(a.src, int(alice.UID), int(alice.GID))))
		a.host(".", "mkdir -p d old; head -c 300000 /dev/urandom >d/big; cp d/big old/big; echo 1 >f")
		ids[name] = a.session("")
		a.bash(ids[name], "mv d e; rm old/big; echo 2 >f")
		if strings.HasSuffix(name, "ended") {
			a.end(ids[name])
		}
	}
	a.src = top
	cached, err := a.m.Create(t.Context(), mounter, client.SessionCreate{Caches: []client.CacheUse{{Name: "own"}}})
	a.must(err)
	a.bash(cached.ID, "head -c 1000000 /dev/urandom >/caches/own/f")

	body := lateBody{t: t}
	writers := []struct {
		name string
		do   func() error
	}{
		{"discard of a live session's path", func() error {
			_, err := a.m.trees.Discard(t.Context(), owner, ids["live"], client.DiscardRequest{Paths: []string{"old"}})
			return err
		}},
		{"discard of an ended session's path", func() error {
			_, err := a.m.trees.Discard(t.Context(), owner, ids["ended"], client.DiscardRequest{Paths: []string{"old"}})
			return err
		}},
		{"apply of a live session", func() error {
			_, err := a.m.trees.Apply(t.Context(), owner, ids["applied live"], client.ApplyRequest{})
			return err
		}},
		{"apply of an ended session", func() error {
			_, err := a.m.trees.Apply(t.Context(), owner, ids["applied ended"], client.ApplyRequest{})
			return err
		}},
		{"upload", func() error {
			_, err := a.m.Files.Upload(t.Context(), owner, ids["live"], "put", 0, &body)
			return err
		}},
		{"promotion of a cache", func() error {
			_, err := a.m.Caches.PromoteCache(t.Context(), mounter, cached.ID, "own")
			return err
		}},
		{"import of an image", func() error {
			var archive bytes.Buffer
			w := tar.NewWriter(&archive)
			a.must(w.WriteHeader(&tar.Header{Name: "a", Typeflag: tar.TypeReg, Mode: 0o644}))
			a.must(w.Close())
			_, err := a.m.Images.ImportImage(t.Context(), root, "small:1", &archive)
			return err
		}},
	}
	state := func() (all string) {
		for _, name := range slices.Sorted(maps.Keys(ids)) {
			all += fmt.Sprintln(name, a.changed(ids[name]))
		}
		for _, glob := range []string{"caches/bases/*/*", "caches/disks/*", "images/images/*", "images/tmp/*"} {
			found, err := filepath.Glob(filepath.Join(filepath.Dir(a.m.cfg.OutputDir), glob))
			a.must(err)
			all += fmt.Sprintln(glob, found)
		}
		files, err := filepath.Glob(top + "/*/*")
		a.must(err)
		return all + fmt.Sprintln(files)
	}
	before := state()
	full := set
	full.HostFree = room.Floor{Percent: 99}
	a.m.Reload(full)
	for _, w := range writers {
		err := w.do()
		f, ok := errors.AsType[*fault.Error](err)
		if !ok || f.Kind != fault.Overloaded || !strings.Contains(err.Error(), "the host's disk is nearly full") || f.Hint == "" {
			t.Errorf("%s on a full disk: %v", w.name, err)
		}
		if now := state(); now != before {
			t.Errorf("%s has left %s; it was %s", w.name, now, before)
		}
	}
	// Of a call whose output is large the beginning is kept, and its result says why.
	c, err := a.m.calls.Call(t.Context(), owner, ids["live"], client.CallCreate{Tool: "bash", Input: []byte(`{"command":"seq 100000"}`)}, call.Options{})
	a.must(err)
	if !c.IsError && c.Error == nil && c.Metadata["output_incomplete"] == nil {
		t.Errorf("a large output on a full disk: %v, %v", c.Error, c.Metadata)
	}
	// The watch ends what writes when it has seen the full disk, until it sees that there is room.
	sees := func(want room.Level) {
		testrig.Eventually(t, fmt.Sprintf("the watch sees level %d", want), func() bool { return room.Level(a.m.disk.level.Load()) == want })
	}
	sees(room.Tight)
	a.m.Reload(set)
	sees(room.Enough)
	body.may = true
	for _, w := range writers {
		if err := w.do(); err != nil {
			t.Errorf("%s when there is room: %v", w.name, err)
		}
	}
	a.holds("applied live/f", "2\n")
	a.holds("applied ended/f", "2\n")
}

// TestRealDryRunOfHoles: a session makes a file that is larger than the disk of the state directory, and
// takes no room: to say what an apply of it would do, and to do it, takes none either. What must stay
// free does, and the call of a neighbour goes on.
func TestRealDryRunOfHoles(t *testing.T) {
	h := newRealHouse(t)
	smallHost(t, h, 1<<30)
	disk, err := room.At(h.Dir)
	testrig.Must(t, err)
	floor := room.Floor{Bytes: 128 << 20}
	// A writer leaves twice the floor. It is taken before anybody looks: a disk that fills so fast is nearly full.
	takeAllBut(t, h.Dir+"/neighbour", disk, floor.Of(disk.Size)+256<<20)
	m, stop, err := h.open(slog.New(slog.NewTextHandler(logTo{t}, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		t.Fatal(err)
	}
	a := &applyRig{t, m, source(t)}
	set := *m.settings.Load()
	set.HostFree, set.DiskOvercommit = floor, 10
	set.Limits.Disk, set.MaxLimits.FileSize = 128<<20, 0
	m.Reload(set)
	const size = 3 << 30
	v, err := m.Create(t.Context(), owner, client.SessionCreate{
		Worktree: client.Worktree{Source: a.src, Mode: client.WorktreeOverlay}, IdleTimeout: -1, Limits: client.Limits{FileSize: 2 * size},
	})
	a.must(err)
	a.bash(v.ID, fmt.Sprintf("truncate -s %d big; head -c 20M /dev/urandom >data", size))
	theirs, err := m.Create(t.Context(), alice, client.SessionCreate{IdleTimeout: -1})
	a.must(err)
	a.bash(theirs.ID, "mkfifo /tmp/go")
	heard := make(chan *client.Call, 1)
	go func() {
		c, err := m.calls.Call(t.Context(), alice, theirs.ID, bashCall("read word </tmp/go; echo $word"), call.Options{})
		if err != nil {
			t.Error(err)
			c = new(client.Call)
		}
		heard <- c
	}()
	done, least := make(chan struct{}), make(chan int64)
	go func() {
		free, each := int64(math.MaxInt64), time.NewTicker(time.Millisecond)
		defer each.Stop()
		for over := false; !over; {
			select {
			case <-done:
				over = true
			case <-each.C:
			}
			if now, err := room.At(h.Dir); err == nil {
				free = min(free, now.Free)
			}
		}
		least <- free
	}()
	for _, r := range []client.ApplyRequest{{DryRun: true}, {}} {
		if got := a.apply(v.ID, r); got.WrittenCount != 2 || got.SkippedCount != 0 {
			t.Errorf("%+v: %+v", r, got)
		}
	}
	close(done)
	if free := <-least; free < floor.Of(disk.Size) {
		t.Errorf("meanwhile %d bytes were free, less than must be", free)
	}
	a.bash(theirs.ID, "echo on 1<>/tmp/go") // without waiting for a reader, whom somebody may have ended
	if c := <-heard; c.Output != "on\n" {
		t.Errorf("the call of a neighbour: %+v", c)
	}
	a.must(errors.Join(os.Remove(h.Dir+"/neighbour"), m.EndAll(context.Background()), stop()))
}

// lateBody is the body of an upload, which nobody may read yet.
type lateBody struct {
	t   *testing.T
	may bool
}

func (u *lateBody) Read([]byte) (int, error) {
	if !u.may {
		u.t.Error("an upload was read that there is no room for")
	}
	return 0, io.EOF
}
