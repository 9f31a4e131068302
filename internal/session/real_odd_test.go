package session

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
)

// oddities are commands that make what no daemon can copy, or should not read whole, and what
// becomes of each in an apply: the kind by which it is named, "" where it is applied.
var oddities = map[string]struct {
	make  string
	names map[string]string // path: kind
}{
	"socket": {
		`python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("odd")'`, map[string]string{"odd": "socket"},
	},
	"fifo":         {`mkfifo odd`, map[string]string{"odd": "fifo"}},
	"mode 0":       {`echo secret >odd; chmod 0 odd`, map[string]string{"odd": "unreadable"}},
	"large mode 0": {`head -c 5000000 /dev/urandom >odd; chmod 0 odd`, map[string]string{"odd": "unreadable"}},
	"shut":         {`mkdir odd; echo x >odd/x; chmod 0 odd`, map[string]string{"odd": "unreadable"}},
	"holes":        {`truncate -s 1G odd; printf end | dd of=odd bs=1 seek=500000000 conv=notrunc 2>/dev/null`, map[string]string{"odd": ""}},
	"too large":    {`truncate -s 200G odd`, map[string]string{"odd": "too_large"}},
	"device":       {`mv device odd`, map[string]string{"odd": "device", "device": "device"}},
	"long path": {
		`python3 -c 'import os
for i in range(20):
    os.mkdir("0" * 250); os.chdir("0" * 250)
open("x", "w").close()'`, nil,
	},
}

// TestRealOdd: whatever lies in the tree of a session, all else of it can be looked at, applied,
// by path, with patterns and after its end, and put aside and brought back; what cannot be
// copied is named by its kind.
func TestRealOdd(t *testing.T) {
	for name, odd := range oddities {
		t.Run(name, func(t *testing.T) {
			a := newApplyRig(t)
			a.write("kept", "kept\n")
			a.must(os.Mkdir(a.src+"/moved", 0o755))
			a.must(os.Chown(a.src+"/moved", int(alice.UID), int(alice.GID)))
			a.write("moved/in", "in\n")
			a.must(unix.Mknod(a.src+"/device", unix.S_IFCHR|0o644, int(unix.Mkdev(1, 3))))
			a.must(os.Chown(a.src+"/device", int(alice.UID), int(alice.GID)))
			v, err := a.m.Create(t.Context(), owner, client.SessionCreate{
				Name: "odd", Worktree: client.Worktree{Source: a.src, Mode: client.WorktreeOverlay}, IdleTimeout: -1,
				Limits: client.Limits{FileSize: 300 << 30},
			})
			a.must(err)
			id := v.ID
			a.bash("odd", "echo one >one; mkdir sub; echo two >sub/two; echo three >three; mv moved to")
			a.bash("odd", odd.make)

			if got := a.changed("odd"); !slices.Contains(got, "one") || !slices.Contains(got, "to/in") {
				t.Errorf("changes: %q", got)
			}
			a.named(a.apply("odd", client.ApplyRequest{DryRun: true}), odd.names)
			_, err = a.m.trees.Checkpoint(t.Context(), owner, "odd", client.CheckpointCreate{})
			a.must(err)
			if v := a.apply("odd", client.ApplyRequest{Paths: []string{"one"}}); v.WrittenCount != 1 || v.SkippedCount != 0 {
				t.Errorf("by path: %+v", v)
			}
			a.holds("one", "one\n")
			if v := a.apply("odd", client.ApplyRequest{Exclude: []string{"odd", "device", "0*", "three"}}); v.WrittenCount != 4 || len(v.Skipped) != 0 {
				t.Errorf("with patterns: %+v", v)
			}
			a.holds("sub/two", "two\n")
			a.holds("to/in", "in\n")
			if got := a.bash("odd", "cat three; ls -A | wc -l; cat to/in"); !strings.HasPrefix(got, "three\n") || !strings.HasSuffix(got, "in") {
				t.Errorf("the session has %q", got)
			}
			for range 40 { // more than a tree has layers before some are merged
				a.bash("odd", "date >>dates")
				_, err := a.m.trees.Checkpoint(t.Context(), owner, "odd", client.CheckpointCreate{})
				a.must(err)
			}
			if tree, err := a.m.cfg.Trees.Get(id); err != nil || len(tree.Lower) > 34 {
				t.Errorf("no layers were merged: there are %d, %v", len(tree.Lower), err)
			}
			c, err := a.m.trees.Checkpoint(t.Context(), owner, "odd", client.CheckpointCreate{})
			a.must(err)
			before := a.bash("odd", "stat -c '%n %F %a %s' *")
			a.bash("odd", "rm -rf three; echo more >more")
			_, err = a.m.trees.Restore(t.Context(), owner, "odd", client.RestoreRequest{Checkpoint: c.ID})
			a.must(err)
			if after := a.bash("odd", "stat -c '%n %F %a %s' *"); after != before {
				t.Errorf("restored to %q, which was %q", after, before)
			}
			if !a.end(id) {
				t.Error("the session has left no changes")
			}
			if got := a.changed(id); !slices.Contains(got, "three") {
				t.Errorf("changes after the end: %q", got)
			}
			a.named(a.apply(id, client.ApplyRequest{}), odd.names)
			a.holds("three", "three\n")
			a.sparse("odd", odd.names)
		})
	}
}

// sparse sees that a file which was applied has its holes.
func (a *applyRig) sparse(path string, names map[string]string) {
	a.t.Helper()
	if kind, named := names[path]; !named || kind != "" {
		return
	}
	var st unix.Stat_t
	a.must(unix.Stat(a.src+"/"+path, &st))
	if st.Size != 1<<30 || st.Blocks*512 > 1<<20 {
		a.t.Errorf("%s of the source has %d bytes, and takes %d", path, st.Size, st.Blocks*512)
	}
}

// named sees that an apply has named what it left out.
func (a *applyRig) named(v *client.Applied, want map[string]string) {
	a.t.Helper()
	kinds := map[string]string{}
	for path, kind := range want {
		if kind != "" {
			kinds[path] = kind
		} else if !slices.Contains(v.Written, path) {
			a.t.Errorf("%s is not written", path)
		}
	}
	got := maps.Clone(v.SkippedKinds)
	if got == nil {
		got = map[string]string{}
	}
	if fmt.Sprint(got) != fmt.Sprint(kinds) {
		a.t.Errorf("left out: %v, want %v", got, kinds)
	}
	if want == nil && v.SkippedCount == 0 {
		a.t.Error("what has too long a path is not counted")
	}
}

// TestRealOddAll: all of that in one tree, with a directory that the session has moved and the host has
// removed: the list, the patch and an apply name each by what it is, and do the rest, of a session that
// lives and of one that is over.
func TestRealOddAll(t *testing.T) {
	a := newApplyRig(t)
	top := a.src
	const hole = 3 << 30
	for _, then := range []string{"live", "over"} {
		a.src = top + "/" + then
		a.must(errors.Join(os.Mkdir(a.src, 0o755), os.Chown(a.src, int(alice.UID), int(alice.GID))))
		a.host(".", "mkdir -p d/sub; echo 1 >d/one; echo 2 >d/sub/two; echo gone >gone; echo old >edited")
		a.must(unix.Mknod(a.src+"/device", unix.S_IFCHR|0o644, int(unix.Mkdev(1, 3))))
		a.must(os.Chown(a.src+"/device", int(alice.UID), int(alice.GID)))
		v, err := a.m.Create(t.Context(), owner, client.SessionCreate{
			Worktree: client.Worktree{Source: a.src, Mode: client.WorktreeOverlay}, IdleTimeout: -1, Limits: client.Limits{FileSize: 2 * hole},
		})
		a.must(err)
		a.bash(v.ID, fmt.Sprintf(`echo one >one; echo new >edited; rm gone; mv d e; echo new >e/new; mkfifo fifo; mv device dev
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'
echo secret >shut; chmod 0 shut; mkdir closed; echo x >closed/x; chmod 0 closed; truncate -s %d hole`, hole))
		if then == "over" {
			a.end(v.ID)
		}
		a.host(".", "rm -r d")
		a.oddShown(then, v.ID, hole)

		before := a.files()
		for _, dry := range []bool{true, false} {
			_, err := a.m.trees.Apply(t.Context(), owner, v.ID, client.ApplyRequest{DryRun: dry})
			f, ok := errors.AsType[*fault.Error](err)
			if !ok || f.Kind != fault.Conflict || len(f.Places) != 1 || f.Places[0].Path != "e" || f.Hint == "" {
				t.Errorf("%s: with what is not whole, dry %v: %v", then, dry, err)
			}
		}
		if after := a.files(); !slices.Equal(before, after) {
			t.Errorf("%s: the source had %q and has %q", then, before, after)
		}
		for _, dry := range []bool{true, false} {
			got := a.apply(v.ID, client.ApplyRequest{DryRun: dry, Exclude: []string{"/e"}})
			want := map[string]string{"socket": "socket", "fifo": "fifo", "dev": "device", "device": "device", "shut": "unreadable", "closed": "unreadable"}
			if !maps.Equal(got.SkippedKinds, want) || !slices.Equal(slices.Sorted(slices.Values(got.Written)), []string{"edited", "hole", "one"}) || !slices.Equal(got.Removed, []string{"gone"}) {
				t.Errorf("%s, dry %v: %+v", then, dry, got)
			}
		}
		a.holds("one", "one\n")
		a.holds("edited", "new\n")
		if _, err := os.Lstat(a.src + "/gone"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: what the session has removed is in the source, %v", then, err)
		}
		var st unix.Stat_t
		a.must(unix.Stat(a.src+"/hole", &st))
		if st.Size != hole || st.Blocks*512 > 1<<20 {
			t.Errorf("%s: the file of the source has %d bytes, and takes %d", then, st.Size, st.Blocks*512)
		}
		if got := a.changed(v.ID); slices.Contains(got, "one") || slices.Contains(got, "hole") || !slices.Contains(got, "e/new") || !slices.Contains(got, "fifo") {
			t.Errorf("%s: after the apply changed are %q", then, got)
		}
	}
}

// oddShown sees that the list and the patch name what TestRealOddAll has made.
func (a *applyRig) oddShown(then, id string, hole int64) {
	t := a.t
	t.Helper()
	c, err := a.m.trees.Changes(t.Context(), owner, id, client.DiffQuery{Limit: 1000})
	a.must(err)
	is := make(map[string]client.Change)
	for _, i := range c.Items {
		is[i.Path] = i
	}
	for path, want := range map[string]client.Change{
		"one": {Status: client.ChangeAdded, Kind: "file"}, "edited": {Status: client.ChangeModified, Kind: "file"},
		"gone": {Status: client.ChangeDeleted}, "hole": {Status: client.ChangeAdded, Kind: "file", Size: hole},
		"socket": {Status: client.ChangeAdded, Kind: "other"}, "fifo": {Status: client.ChangeAdded, Kind: "other"},
		"dev": {Status: client.ChangeAdded, Kind: "other"}, "device": {Status: client.ChangeDeleted},
		"shut": {Status: client.ChangeAdded, Kind: "file"}, "closed": {Status: client.ChangeAdded, Kind: "dir"},
	} {
		got := is[path]
		closed := path == "shut" || path == "closed"
		if got.Status != want.Status || got.Kind != want.Kind || want.Size > 0 && got.Size != want.Size || (got.Unreadable != "") != closed {
			t.Errorf("%s: %s is listed as %+v", then, path, got)
		}
	}
	if c.Unreadable != 2 || len(c.Incomplete) != 1 || c.Incomplete[0].Path != "e" || c.Incomplete[0].From != "d" {
		t.Errorf("%s: %d are unreadable, and not whole are %+v", then, c.Unreadable, c.Incomplete)
	}
	body, err := a.m.trees.Diff(t.Context(), owner, id, client.DiffQuery{})
	a.must(err)
	patch, err := io.ReadAll(body)
	a.must(err)
	counts := body.(interface {
		Missing() (leftOut, unreadable int)
		Incomplete() int
	})
	leftOut, unreadable := counts.Missing()
	a.must(body.Close())
	// Left out are the socket, the FIFO, the device at both of its names, and what is too large for git.
	if leftOut != 5 || unreadable != 2 || counts.Incomplete() != 1 || len(patch) > 1<<20 {
		t.Errorf("%s: of the patch of %d bytes %d are left out, %d unreadable, %d not whole", then, len(patch), leftOut, unreadable, counts.Incomplete())
	}
	for _, has := range []string{"+one\n", "-old\n+new\n", "deleted file mode 100644\n", "b/e/new\n"} {
		if !strings.Contains(string(patch), has) {
			t.Errorf("%s: the patch lacks %q:\n%.2000s", then, has, patch)
		}
	}
}

// TestRealHoles: a file of 3 GiB that takes no room takes none in what an apply makes of it; and hardly
// any in a patch, which for that has to read it: a smaller one.
func TestRealHoles(t *testing.T) {
	a := newApplyRig(t)
	const size = 3 << 30
	v, err := a.m.Create(t.Context(), owner, client.SessionCreate{
		Name: "s", Worktree: client.Worktree{Source: a.src, Mode: client.WorktreeOverlay}, IdleTimeout: -1,
		Limits: client.Limits{FileSize: 2 * size},
	})
	a.must(err)
	a.bash("s", fmt.Sprintf("truncate -s %d big; truncate -s 100M less; echo one >one", size))
	if got := a.changed("s"); !slices.Equal(got, []string{"big", "less", "one"}) {
		t.Errorf("changed are %q", got)
	}
	patch, _ := a.patch(v.ID, client.DiffQuery{Paths: []string{"less", "one"}})
	if len(patch) > 1<<20 || !strings.Contains(string(patch), "+one") || !strings.Contains(string(patch), "less") {
		t.Errorf("the patch has %d bytes:\n%.1000s", len(patch), patch)
	}
	for _, r := range []client.ApplyRequest{{DryRun: true}, {}} {
		if v := a.apply(v.ID, r); v.WrittenCount != 3 || len(v.Skipped) != 0 {
			t.Errorf("%+v: %+v", r, v)
		}
	}
	var st unix.Stat_t
	a.must(unix.Stat(a.src+"/big", &st))
	if st.Size != size || st.Blocks*512 > 1<<20 {
		t.Errorf("the source has %d bytes, and takes %d", st.Size, st.Blocks*512)
	}
	a.holds("one", "one\n")
	a.end(v.ID)
}
