package exec

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/internal/needs"
)

// hiding is a rig whose kernel can keep directories from programs.
func hiding(t *testing.T) *rig {
	t.Helper()
	needs.Landlock(t, landlockHides)
	return newRig(t, nil)
}

// unseen runs a command from which these directories are kept.
func (r *rig) unseen(command string, dirs ...string) (string, outcome) {
	r.t.Helper()
	var out bytes.Buffer
	o, err := r.call(r.t.Context(), request{command: command, unseen: dirs}, &out)
	if err != nil {
		r.t.Fatalf("%.80q: %v", command, err)
	}
	return out.String(), o
}

// Every way to a directory's content that needs no right but that of its owner, in it and below:
// none is open where the directory is unseen, and all are beside it.
func TestUnseenWays(t *testing.T) {
	t.Parallel()
	r := hiding(t)
	r.bash("mkdir -p in/kept/d own/other/d; for d in in/kept own/other; do echo secret > $d/d/f; cp /bin/true $d/d/run; mkdir $d/d/empty; ln -s d/f $d/link; done")
	ways := map[string]string{
		"read":         "cat $D/d/f",
		"read by cd":   "cd $D/d && cat f",
		"read a link":  "cat $D/link",
		"read by proc": "cat /proc/self/cwd/$D/d/f",
		"an argument":  "echo $D/d/f | xargs cat",
		"no reader":    "base64 $D/d/f | grep c2VjcmV0",
		"a language":   `python3 -c "print(open('$D/d/f').read())"`,
		"in":           "read x < $D/d/f",
		"list":         "ls $D/d",
		"list itself":  "ls $D",
		"wildcard":     "set -- $D/*; test -e \"$1\"",
		"find":         "find -L $D -name f | grep f",
		"run":          "$D/d/run",
		"write":        "echo x > $D/d/f",
		"append":       "echo x >> $D/d/f",
		"truncate":     "truncate -s 0 $D/d/f",
		"by path":      `python3 -c "import os; os.truncate('$D/d/f', 0)"`,
		"create":       "echo x > $D/d/new",
		"make":         "mkdir $D/d/newer",
		"a fifo":       "mkfifo $D/d/fifo",
		"a link":       "ln -s x $D/d/l",
		"a hard link":  "ln $D/d/f own/hard",
		"remove":       "rm -f $D/d/f",
		"remove dir":   "rmdir $D/d/empty",
		"move out":     "mv $D/d/f own/taken",
		"move in":      "echo x > own/mine; mv own/mine $D/d/mine",
		"itself":       "mv $D own/moved",
	}
	kept := filepath.Join(r.dir, "in/kept")
	content := func() string {
		out, _ := r.bash("find in | sort; cat in/kept/d/f")
		return out
	}
	before := content()
	for name, way := range ways {
		if out, o := r.unseen(strings.ReplaceAll(way, "$D", "in/kept"), kept); !o.Result.IsError || strings.Contains(out, "secret") {
			t.Errorf("%s: %s", name, out)
		}
		if got := content(); got != before {
			t.Fatalf("%s:\n%swas\n%s", name, got, before)
		}
	}
	// In an order in which each of them finds what it needs.
	for _, name := range []string{
		"read", "read by cd", "read a link", "read by proc", "an argument", "no reader", "a language", "in", "list", "list itself",
		"wildcard", "find", "run", "write", "append", "by path", "truncate", "create", "make", "a fifo", "a link", "a hard link", "remove",
		"remove dir", "move in", "itself", // the last takes all of it away
	} {
		if out, o := r.unseen(strings.ReplaceAll(ways[name], "$D", "own/other"), kept); o.Result.IsError {
			t.Errorf("%s beside it: %s", name, out)
		}
	}
	if out, o := r.unseen("true", kept); o.Result.IsError || !slices.Equal(o.Exit.Unseen, []string{kept}) {
		t.Errorf("%s %+v", out, o.Exit)
	}
	if out, o := r.bash("ls in/kept/d"); o.Result.IsError || o.Exit.Unseen != nil {
		t.Errorf("the next command: %s %+v", out, o.Exit)
	}
}

// Random trees: a file can be read where nothing on the way to it is unseen, and a directory listed
// where nothing unseen lies in it either.
func TestUnseenTrees(t *testing.T) {
	t.Parallel()
	r := hiding(t)
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		top := filepath.Join(r.dir, fmt.Sprint(seed))
		dirs, unseen := []string{top}, []string(nil)
		for range 2 + random.IntN(12) {
			dirs = append(dirs, filepath.Join(dirs[random.IntN(len(dirs))], fmt.Sprint(random.IntN(4))))
		}
		slices.Sort(dirs)
		dirs = slices.Compact(dirs)
		for _, d := range dirs {
			if err := os.MkdirAll(d, 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(d, "file"), []byte("x"), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		for range 1 + random.IntN(3) {
			unseen = append(unseen, dirs[1+random.IntN(len(dirs)-1)])
		}
		var script, want strings.Builder
		for _, d := range dirs {
			under := slices.ContainsFunc(unseen, func(u string) bool { return d == u || strings.HasPrefix(d, u+"/") })
			above := slices.ContainsFunc(unseen, func(u string) bool { return strings.HasPrefix(u, d+"/") })
			fmt.Fprintf(&script, "cat %[1]s/file >/dev/null 2>&1; a=$?; ls %[1]s >/dev/null 2>&1; b=$?; echo %[1]s $a $((b > 0))\n", d)
			fmt.Fprintln(&want, d, oneIf(under), oneIf(under || above))
		}
		if out, _ := r.unseen(script.String(), unseen...); out != want.String() {
			t.Errorf("seed %d, unseen %q:\n%swant\n%s", seed, unseen, out, want.String())
		}
	}
}

func oneIf(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A directory that cannot be kept from a program keeps the program from running.
func TestUnseenFailsClosed(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.spawner.landlock.abi = landlockHides - 1
	var out bytes.Buffer
	_, err := r.call(t.Context(), request{command: "touch ran", unseen: []string{r.dir + "/x"}}, &out)
	if err == nil || !strings.Contains(err.Error(), "no means") {
		t.Errorf("%v %s", err, &out)
	}
	if _, err := os.Lstat(r.dir + "/ran"); err == nil {
		t.Error("it ran")
	}
	if r.Hides() {
		t.Error("it says that it can")
	}
}

// No descriptor is left of a ruleset, whatever becomes of the program. Alone in its process: it counts.
func TestUnseenLeavesNone(t *testing.T) {
	r := hiding(t)
	rulesets := func() (n int) {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.Contains(to, "landlock") {
				n++
			}
		}
		return n
	}
	before := rulesets()
	dir := []string{r.dir + "/x"}
	var out bytes.Buffer
	r.unseen("true", dir...)
	if _, err := r.call(t.Context(), request{program: []string{"/none"}, unseen: dir}, &out); err == nil {
		t.Error("a program that is not there has run")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.call(over, request{command: "true", unseen: dir}, &out); err == nil {
		t.Error("it ran after its end")
	}
	if rulesets() != before {
		t.Errorf("%d rulesets, then %d", before, rulesets())
	}
}
