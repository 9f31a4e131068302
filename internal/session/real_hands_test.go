package session

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/testrig"
)

// gitFiles are those of a tree as git knows it: of each path what leads there, or its content
// after whether its owner may execute it.
type gitFiles map[string]string

// unpack gives what an archive of a tree has.
func unpack(t *testing.T, archive io.Reader) gitFiles {
	t.Helper()
	all := make(gitFiles)
	for in := tar.NewReader(archive); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		content, more := io.ReadAll(in)
		if err = errors.Join(err, more); err != nil {
			t.Fatal(err)
		}
		switch name := path.Clean(h.Name); h.Typeflag {
		case tar.TypeReg:
			all[name] = fmt.Sprintf("%v %s", h.Mode&0o100 != 0, content)
		case tar.TypeSymlink:
			all[name] = "-> " + h.Linkname
		}
	}
}

// filesOf are those of a directory.
func filesOf(t *testing.T, dir string) gitFiles {
	t.Helper()
	out, err := exec.Command("tar", "c", "--hard-dereference", "-C", dir, ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	return unpack(t, bytes.NewReader(out))
}

// fill makes a directory have files, which has none.
func (f gitFiles) fill(t *testing.T, dir string) {
	t.Helper()
	for name, is := range f {
		p := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(p), 0o755)
		if to, link := strings.CutPrefix(is, "-> "); link {
			err = errors.Join(err, os.Symlink(to, p))
		} else if content, x := strings.CutPrefix(is, "true "); x {
			err = errors.Join(err, os.WriteFile(p, []byte(content), 0o755))
		} else {
			err = errors.Join(err, os.WriteFile(p, []byte(is[len("false "):]), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// put has a file in the place of what is there, or nothing.
func (f gitFiles) put(name, is string) {
	if delete(f, name); is == "" {
		return
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		delete(f, dir)
	}
	maps.DeleteFunc(f, func(p, _ string) bool { return strings.HasPrefix(p, name+"/") })
	f[name] = is
}

// twoHands is a session and a person who change one tree.
type twoHands struct {
	*applyRig
	name    string
	apart   bool // they seldom meet
	rand    *rand.Rand
	session string
	log     []string

	began  gitFiles        // what the source had when the session began
	base   gitFiles        // the same, but what it had when the session first wrote to a path
	wrote  map[string]bool // by the session
	theirs map[string]bool // written by the person
}

// command changes something at random, in sh.
func (h *twoHands) command(who string) string {
	dir := func() int {
		switch {
		case h.apart && who == "mine":
			return h.rand.IntN(2)
		case h.apart && h.rand.IntN(12) > 0:
			return 2
		}
		return h.rand.IntN(3)
	}
	file := func() string { return fmt.Sprintf("d%d/f%d", dir(), h.rand.IntN(4)) }
	f, line := file(), 1+h.rand.IntN(12)
	const text = "[ -f %[1]s ] && [ ! -h %[1]s ] && "
	switch h.rand.IntN(14) {
	case 0, 1, 2:
		return fmt.Sprintf(text+"sed -i '%[2]ds/$/ %[3]s/' %[1]s", f, line, who)
	case 3, 4:
		return fmt.Sprintf(text+"echo %[2]s%[3]d >>%[1]s", f, who, line)
	case 5:
		return "rm -rf " + f
	case 6, 7:
		return fmt.Sprintf(text+"if [ -x %[1]s ]; then chmod 644 %[1]s; else chmod 755 %[1]s; fi", f)
	case 8:
		return fmt.Sprintf(text+"[ ! -e %[2]s ] && [ ! -h %[2]s ] && mv %[1]s %[2]s", f, file())
	case 9:
		return fmt.Sprintf("echo %[2]s >d%[1]d/new%[3]d", dir(), who, h.rand.IntN(4))
	case 10:
		return fmt.Sprintf("[ -d %[4]s ] && rm -rf %[1]s && ln -s %[2]s%[3]d %[1]s", f, who, line, path.Dir(f))
	case 11:
		return fmt.Sprintf("[ -d %[4]s ] && rm -rf %[1]s && mkdir %[1]s && echo %[2]s >%[1]s/%[3]d", f, who, line%3, path.Dir(f))
	case 12:
		return fmt.Sprintf("rm -rf %[1]s && echo %[2]s >%[1]s", path.Dir(f), who)
	}
	return fmt.Sprintf("[ -d %[4]s ] && rm -rf %[1]s && printf '\\000%[2]s%[3]d\\n' >%[1]s", f, who, line, path.Dir(f))
}

// mine has the session do something.
func (h *twoHands) mine(source gitFiles) {
	command := h.command("mine")
	const pack = "tar cz --hard-dereference --exclude=./.toold . | base64"
	out := h.bash(h.session, "exec 2>/dev/null; "+pack+"; echo %; { "+command+"; } || true; "+pack)
	h.log = append(h.log, "mine: "+command)
	var seen [2]gitFiles
	before, after, _ := strings.Cut(out, "%")
	for i, part := range []string{before, after} {
		packed, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(part)))
		if err != nil {
			h.t.Fatalf("%v: %q, after %q", err, out, h.log)
		}
		seen[i] = unpack(h.t, packed)
	}
	for p := range union(seen[0], seen[1]) {
		if seen[0][p] != seen[1][p] && !h.wrote[p] {
			h.wrote[p] = true
			h.base.put(p, source[p])
		}
	}
}

// source has the person do something.
func (h *twoHands) source() {
	command, before := h.command("theirs"), filesOf(h.t, h.src)
	c := exec.Command("sh", "-uc", "{ "+command+"; } || true")
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: alice.UID, Gid: alice.GID}}
	c.Dir = h.src
	if out, err := c.CombinedOutput(); err != nil {
		h.t.Fatalf("%q: %v: %s", c.Args, err, out)
	}
	h.log = append(h.log, "theirs: "+command)
	after := filesOf(h.t, h.src)
	for p := range union(before, after) {
		if before[p] != after[p] {
			h.theirs[p] = true
		}
	}
}

func union(all ...gitFiles) map[string]bool {
	paths := make(map[string]bool)
	for _, f := range all {
		for p := range f {
			paths[p] = true
		}
	}
	return paths
}

// at says whether a path is one of some, above one or below one.
func at(some map[string]bool, p string) bool {
	for q := range some {
		if p == q || strings.HasPrefix(p, q+"/") || strings.HasPrefix(q, p+"/") {
			return true
		}
	}
	return false
}

// patch gives a patch and what it says of itself.
func (a *applyRig) patch(session string, q client.DiffQuery) (text []byte, stale int) {
	a.t.Helper()
	r, err := a.m.trees.Diff(a.t.Context(), owner, session, q)
	a.must(err)
	text, err = io.ReadAll(r)
	a.must(err)
	stale = r.(interface{ Stale() int }).Stale()
	a.must(r.Close())
	return text, stale
}

// TestRealBothSides: whatever a session and a person do to one tree, the patch makes of what
// the session began with what the session has, and touches nothing that is the person's. What
// it cannot say it names, and leaves out. What apply makes of the source is git's three-way
// result.
func TestRealBothSides(t *testing.T) {
	a := newApplyRig(t)
	set := *a.m.settings.Load()
	set.Policy = rules(t, "[permission]\nbash = \"allow\"\nexternal_directory = \"allow\"\ndoom_loop = \"allow\"\n") // nobody answers here
	a.m.Reload(set)
	first := uint64(0)
	if os.Getenv("TOOLD_TEST_LONG") != "" {
		first = uint64(time.Now().UnixNano())
		t.Logf("seeds from %d on", first)
	}
	for seed := first; seed < first+uint64(testrig.Rounds(4)); seed++ {
		h := &twoHands{applyRig: a, name: fmt.Sprint("seed", seed), apart: seed%2 == 1, rand: rand.New(rand.NewPCG(seed, 7)), wrote: make(map[string]bool), theirs: make(map[string]bool)}
		h.round()
		if t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, strings.Join(h.log, "\n"))
		}
	}
}

// TestRealHidden: what a directory had that a session removed, replaced or moved is not named by
// its layers; a person's change in it is seen all the same, and not taken back.
func TestRealHidden(t *testing.T) {
	a := newApplyRig(t)
	for i, command := range []string{
		"rm -r d", "mv d e", "rm -r d; mkdir d; echo >d/new", "rm -r d; echo >d", "rm -r d; ln -s f d", "mv d/in e",
		"mkdir -p e; echo >e/f; mv d e; rm -r e/d/in", // and what is as it was
		"echo mine >d/in/g; echo mine >new; mkdir own; echo mine >own/f",
	} {
		for _, layered := range []bool{false, true} {
			a.must(exec.Command("install", "-d", "-o", fmt.Sprint(alice.UID), a.src+"/d", a.src+"/d/in").Run())
			a.write("d/in/f", "1\n2\n3\n")
			a.write("d/in/g", "1\n2\n3\n")
			name := fmt.Sprintf("s%d-%v", i, layered)
			id := a.session(name)
			a.bash(name, command)
			a.changed(id) // looks
			if layered {
				_, err := a.m.trees.Checkpoint(t.Context(), owner, id, client.CheckpointCreate{})
				a.must(err)
				a.bash(name, "echo >more")
			}
			before, stale := a.patch(id, client.DiffQuery{})
			if stale != 0 || len(before) == 0 {
				t.Errorf("%s (layered: %v): %d are stale in\n%s", command, layered, stale, before)
			}
			for _, theirs := range []string{"d/in/made", "d/in/f"} {
				a.write(theirs, "1\n2\n3\ntheirs\n")
				if after, _ := a.patch(id, client.DiffQuery{}); strings.Contains(string(after), "\n-theirs") {
					t.Errorf("%s (layered: %v) takes back what a person did at %s:\n%s", command, layered, theirs, after)
				}
			}
			a.must(os.Remove(a.src + "/d/in/made"))
			_ = a.end(id)
		}
	}
}

// TestRealNoSide: a file that is too large to be compared, in the place of a directory in which
// a person has changed something, is counted among what the patch lacks.
func TestRealNoSide(t *testing.T) {
	a := newApplyRig(t)
	a.must(exec.Command("install", "-d", "-o", fmt.Sprint(alice.UID), a.src+"/d").Run())
	a.write("d/f", "1\n")
	a.write("d/g", "1\n")
	id := a.session("s")
	a.bash("s", "echo mine >d/f")
	a.changed(id) // looks, so that its base is kept
	a.bash("s", "rm -r d; head -c 5000000 /dev/zero >d")
	a.write("d/f", "theirs\n")
	r, err := a.m.trees.Diff(t.Context(), owner, id, client.DiffQuery{})
	a.must(err)
	text, err := io.ReadAll(r)
	a.must(err)
	if left, _ := r.(interface {
		Missing() (leftOut, unreadable int)
	}).Missing(); left != 1 || strings.Contains(string(text), "\n-theirs") {
		t.Errorf("%d are left out of\n%.2000s", left, text)
	}
	a.must(r.Close())
}

func (h *twoHands) round() {
	h.src = h.t.TempDir()
	h.must(os.Chmod(filepath.Dir(h.src), 0o755))
	h.began = make(gitFiles)
	for i := range 12 {
		h.began[fmt.Sprintf("d%d/f%d", i%3, i/3)] = "false " + strings.Repeat("1\n2\n3\n", 4)
	}
	h.began.fill(h.t, h.src)
	h.must(exec.Command("chown", "-R", fmt.Sprintf("%d:%d", alice.UID, alice.GID), h.src).Run())
	h.base = maps.Clone(h.began)
	h.session = h.applyRig.session(h.name)
	for range 8 {
		h.mine(filesOf(h.t, h.src))
		h.changed(h.session) // looks, so that all bases are kept that can be
		h.source()
	}
	now := filesOf(h.t, h.src)
	packed, err := base64.StdEncoding.DecodeString(h.bash(h.session, "tar c --hard-dereference --exclude=./.toold . | base64 -w0"))
	h.must(err)
	mine := unpack(h.t, bytes.NewReader(packed))
	h.checkPatch(mine, now)
	h.checkApply(mine, now)
	_ = h.end(h.session)
}

func (h *twoHands) checkPatch(mine, now gitFiles) {
	t := h.t
	c, err := h.m.trees.Changes(t.Context(), owner, h.session, client.DiffQuery{Limit: 1000})
	h.must(err)
	stale := make(map[string]bool)
	for i := range c.Items {
		stale[c.Items[i].Path] = c.Items[i].Stale
	}
	maps.DeleteFunc(stale, func(_ string, is bool) bool { return !is })
	text, left := h.patch(h.session, client.DiffQuery{})
	base := maps.Clone(now)
	for _, p := range slices.Sorted(maps.Keys(h.wrote)) {
		if mine[p] != "" || at(union(now), p) { // else it is gone on both sides: nobody has to do anything
			base.put(p, h.base[p])
		}
	}
	dir := t.TempDir()
	base.fill(t, dir)
	apply := exec.Command("git", "apply", "--whitespace=nowarn", "--allow-empty")
	apply.Dir, apply.Stdin = dir, bytes.NewReader(text)
	if out, err := apply.CombinedOutput(); err != nil {
		t.Errorf("git apply: %v: %s\n%s\n%+v", err, out, text, c.Items)
		return
	}
	got := filesOf(t, dir)
	for p := range union(base, now, mine, got) {
		want := base[p]
		if h.wrote[p] {
			want = mine[p]
		}
		if got[p] != want && (!at(stale, p) && mine[p] != now[p] || got[p] != base[p]) {
			t.Errorf("%s is %q with the patch; it was %q, is %q in the session (which wrote it: %v) and %q in the source; %d stale: %v\n%s", p, got[p], base[p], mine[p], h.wrote[p], now[p], left, stale, text)
		}
	}
	for p := range stale {
		if !at(h.theirs, p) {
			t.Errorf("%s is stale and nobody touched it", p)
		}
	}
}

// merged is what a merge of a path makes, and whether it can.
func (h *twoHands) merged(base, mine, now string) (string, bool) {
	switch {
	case mine == base || mine == now:
		return now, true
	case now == base:
		return mine, true
	}
	all, modes := make([]string, 3), make([]string, 3)
	dir := h.t.TempDir()
	for i, is := range []string{now, base, mine} {
		mode, content, _ := strings.Cut(is, " ")
		if is == "" || mode == "->" || strings.Contains(content, "\x00") {
			return "", false
		}
		all[i], modes[i] = filepath.Join(dir, fmt.Sprint(i)), mode
		h.must(os.WriteFile(all[i], []byte(content), 0o600))
	}
	out, err := exec.Command("git", append([]string{"merge-file", "-p"}, all...)...).Output()
	mode := modes[2]
	if mode == modes[1] {
		mode = modes[0]
	}
	return mode + " " + string(out), err == nil
}

func (h *twoHands) checkApply(mine, now gitFiles) {
	t := h.t
	want, conflicts := maps.Clone(now), make(map[string]bool)
	for p := range union(h.base, now, mine) {
		if !h.wrote[p] {
			continue
		}
		is, ok := h.merged(h.base[p], mine[p], now[p])
		if !ok {
			conflicts[p] = true
		} else if is == "" {
			delete(want, p)
		} else {
			want[p] = is
		}
	}
	refused, request := make(map[string]bool), client.ApplyRequest{Merge: true, DryRun: true}
	_, err := h.m.trees.Apply(t.Context(), owner, h.session, request)
	if f, ok := errors.AsType[*fault.Error](err); ok && errors.Is(err, fault.Conflict) {
		for _, place := range f.Places {
			refused[place.Path] = true
			request.Exclude = append(request.Exclude, "/"+place.Path)
			if !at(h.theirs, place.Path) {
				t.Errorf("%s is a conflict, and nobody touched it", place.Path)
			}
		}
	} else {
		h.must(err)
	}
	for p := range conflicts {
		if !at(refused, p) {
			t.Errorf("%s is no conflict: it was %q, is %q in the session and %q in the source: %v", p, h.base[p], mine[p], now[p], err)
		}
	}
	request.DryRun = false
	if _, again := h.m.trees.Apply(t.Context(), owner, h.session, request); again != nil {
		t.Errorf("without %q: %v, before %v", request.Exclude, again, err)
		return
	}
	got := filesOf(t, h.src)
	for p := range union(want, got) {
		if at(refused, p) {
			want.put(p, now[p])
		}
		if got[p] != want[p] {
			t.Errorf("apply makes %s %q, want %q; it was %q, is %q in the session, and was %q in the source; refused were %v", p, got[p], want[p], h.base[p], mine[p], now[p], err)
		}
	}
}

// TestRealForkKnowsTheBeginning: a fork goes from what its session began with.
func TestRealForkKnowsTheBeginning(t *testing.T) {
	a := newApplyRig(t)
	a.write("f", "1\n2\n3\n4\n5\n6\n")
	id := a.session("s")
	a.bash("s", "sed -i s/6/six/ f")
	a.changed(id) // looks
	fork, err := a.m.trees.Fork(t.Context(), owner, id, client.ForkRequest{Name: "fork"})
	a.must(err)
	a.write("f", "1\nmine\n3\n4\n5\n6\n")
	text, stale := a.patch(fork.ID, client.DiffQuery{})
	if stale != 0 || strings.Contains(string(text), "mine") || !strings.Contains(string(text), "+six") {
		t.Errorf("%d are stale in\n%s", stale, text)
	}
	if v := a.apply(fork.ID, client.ApplyRequest{Merge: true}); !slices.Equal(v.Merged, []string{"f"}) {
		t.Errorf("got %+v", v)
	}
	a.holds("f", "1\nmine\n3\n4\n5\nsix\n")
}

// TestRealNoBase: what nobody knows the beginning of is named, counted and left out, whatever
// page it is on; a checkpoint that has the file itself has nothing to do with the source.
func TestRealNoBase(t *testing.T) {
	a := newApplyRig(t)
	for _, n := range []string{"a", "b", "c"} {
		a.write(n, "1\n2\n3\n")
	}
	id := a.session("s")
	a.bash("s", "echo mine >>a; echo mine >>b; echo mine >>c")
	a.changed(id)
	cp, err := a.m.trees.Checkpoint(t.Context(), owner, id, client.CheckpointCreate{})
	a.must(err)
	a.bash("s", "echo more >>a")
	a.changed(id)
	for _, n := range []string{"a", "c"} {
		a.write(n, "theirs\n")
	}
	a.must(os.RemoveAll(a.m.cfg.Trees.ApplyDir(id)))
	text, stale := a.patch(id, client.DiffQuery{})
	if stale != 2 || strings.Contains(string(text), "theirs") || !strings.Contains(string(text), "b/b") {
		t.Errorf("%d are stale in\n%s", stale, text)
	}
	page, err := a.m.trees.Changes(t.Context(), owner, id, client.DiffQuery{Limit: 1})
	a.must(err)
	if len(page.Items) != 1 || page.Stale != 2 || page.Files != 3 {
		t.Errorf("a page of one: %+v", page)
	}
	if text, stale := a.patch(id, client.DiffQuery{Against: cp.ID}); stale != 0 || !strings.Contains(string(text), "+more") {
		t.Errorf("against the checkpoint %d are stale in\n%s", stale, text)
	}
}

// TestRealHiddenByCheckpoint: where a checkpoint hides what the source has, because a directory was made
// anew or moved, the source has no part in what was done since.
func TestRealHiddenByCheckpoint(t *testing.T) {
	a := newApplyRig(t)
	a.host(".", "mkdir d e; echo 1 >d/f; echo 1 >e/f")
	id := a.session("")
	a.bash(id, "rm -r d; mkdir d; echo mine >d/a; mv e moved; mkdir e; echo mine >e/a")
	cp, err := a.m.trees.Checkpoint(t.Context(), owner, id, client.CheckpointCreate{})
	a.must(err)
	a.bash(id, "echo more >d/f; echo more >e/f")
	a.host(".", "echo theirs >d/f; echo theirs >e/f")
	if text, stale := a.patch(id, client.DiffQuery{Against: cp.ID}); stale != 0 || strings.Count(string(text), "+more") != 2 {
		t.Errorf("%d stale:\n%s", stale, text)
	}
}
