package session

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
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
