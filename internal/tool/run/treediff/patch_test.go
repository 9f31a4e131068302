package treediff

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// TestMaxPatched: what clients say of the bound is true of the agent, which does without them.
func TestMaxPatched(t *testing.T) {
	if maxPatched != client.MaxPatched {
		t.Errorf("a file of a patch has %d bytes at most, and clients say %d", maxPatched, client.MaxPatched)
	}
}

// gitIn runs git outside any repository.
func gitIn(t testing.TB, dir string, in []byte, args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath("git")
	if err != nil {
		testrig.Skipf(t, "git", "there is no git to compare with")
	}
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(in)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err = cmd.Run(); err != nil {
		err = errors.New(err.Error() + ": " + errs.String())
	}
	return out.String(), err
}

// sayable removes from a tree what a patch cannot say: directories without files, and
// what is no file, directory or link.
func sayable(t testing.TB, dir string) {
	t.Helper()
	all := paths(t, dir)
	for _, p := range slices.Backward(all) {
		path := filepath.Join(dir, p)
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode()&fs.ModeNamedPipe != 0 {
			_ = os.Remove(path)
		}
	}
	for _, p := range slices.Backward(all) {
		if info, err := os.Lstat(filepath.Join(dir, p)); err == nil && info.IsDir() {
			_ = os.Remove(filepath.Join(dir, p)) // only if it is empty
		}
	}
}

// asGit is a snapshot with what git knows of it.
func asGit(all map[string]seen) map[string]seen {
	maps.DeleteFunc(all, func(_ string, s seen) bool { return s.kind != File && s.kind != Link })
	for p, s := range all {
		if s.kind == File {
			s.mode &= 0o100
		}
		all[p] = s
	}
	return all
}

var diffHead = regexp.MustCompile(`(?m)^diff --git (.*)$`)

// named are the paths that a patch has, each once.
func named(t testing.TB, patch string) []string {
	t.Helper()
	var all []string
	for _, m := range diffHead.FindAllStringSubmatch(patch, -1) {
		half := m[1][:len(m[1])/2]
		if half[0] == '"' {
			plain, err := strconv.Unquote(half)
			if err != nil {
				t.Fatalf("%s: %v", half, err)
			}
			half = plain
		}
		_, path, _ := strings.Cut(half, "/")
		all = append(all, path)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// git makes the tree of the base with the patch of random trees, and the base of the tree
// with the same patch backwards.
func TestPatch(t *testing.T) {
	eachPrepared(t, 31, 120, sayable, func(t *testing.T, rnd *rand.Rand, r *rig) {
		patch, totals := r.write(t, Patch)
		old, new := asGit(snapshot(t, r.base)), asGit(snapshot(t, r.tree))
		if want := slices.Sorted(maps.Keys(expected(old, new))); !slices.Equal(named(t, string(patch)), want) {
			t.Errorf("the patch has %q; want %q", named(t, string(patch)), want)
		}
		_, all := r.write(t, List)
		checkTotals(t, totals, all)
		if len(patch) == 0 || loopsBecomeDirectories(r.base, r.tree) || loopsBecomeDirectories(r.tree, r.base) {
			return
		}
		copied := t.TempDir()
		copyTree(t, r.base, copied)
		for _, step := range []struct {
			want map[string]seen
			args []string
		}{{new, nil}, {old, []string{"-R"}}} {
			if _, err := gitIn(t, copied, patch, append([]string{"apply", "--binary", "--whitespace=nowarn"}, step.args...)...); err != nil {
				t.Fatalf("%v", err)
			}
			sameTree(t, asGit(snapshot(t, copied)), step.want)
		}
	})
}

// loopsBecomeDirectories is whether a link of one tree that leads to itself is a directory in
// the other. git looks for the new files through the link, before it removes it, and refuses
// ("Too many levels of symbolic links") what its own diff says of such a tree too.
func loopsBecomeDirectories(from, to string) bool {
	found := false
	_ = filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type() == fs.ModeSymlink {
			_, err := os.Stat(p)
			info, other := os.Lstat(filepath.Join(to, strings.TrimPrefix(p, from)))
			found = found || errors.Is(err, syscall.ELOOP) && other == nil && info.IsDir()
		}
		return nil
	})
	return found
}

func checkTotals(t *testing.T, patch, list Totals) {
	t.Helper()
	patch.LeftOut = 0
	// Lines of links count in a patch.
	patch.Added, patch.Removed, list.Added, list.Removed = 0, 0, 0, 0
	if patch != list {
		t.Errorf("totals %+v; a list has %+v", patch, list)
	}
}

// The patch has the modes and contents that git's own has.
func TestPatchAsGit(t *testing.T) {
	heads := regexp.MustCompile(`(?m)^(new file mode|deleted file mode|old mode|new mode|index |GIT binary patch|literal 0$).*$`)
	eachPrepared(t, 32, 60, sayable, func(t *testing.T, _ *rand.Rand, r *rig) {
		patch, _ := r.write(t, Patch)
		dir := t.TempDir()
		for _, side := range [][2]string{{r.base, "a"}, {r.tree, "b"}} {
			if err := os.Mkdir(filepath.Join(dir, side[1]), 0o755); err != nil {
				t.Fatal(err)
			}
			copyTree(t, side[0], filepath.Join(dir, side[1]))
		}
		out, _ := gitIn(t, dir, nil, "diff", "--no-index", "--binary", "--full-index", "--no-renames", "--no-color", "--no-prefix", "a", "b")
		got, want := heads.FindAllString(string(patch), -1), heads.FindAllString(out, -1)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("the patch:\n%s\ngit's:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// Large files, and texts of more lines than are compared, go as binary.
func TestPatchOfLargeFiles(t *testing.T) {
	r := newRig(t, t.TempDir(), t.TempDir())
	data := make([]byte, maxText+5)
	rand.NewChaCha8([32]byte{}).Read(data)
	many := bytes.Repeat([]byte("\n"), maxLines+1)
	huge := append(bytes.Repeat([]byte("line\n"), maxReverse/5), data...)
	err := errors.Join(os.WriteFile(r.base+"/data", data, 0o644), os.WriteFile(r.tree+"/data", append(data, 1), 0o644),
		os.WriteFile(r.base+"/many", many, 0o644), os.WriteFile(r.tree+"/many", many[1:], 0o644),
		os.WriteFile(r.base+"/huge", huge, 0o644), os.WriteFile(r.tree+"/huge", huge[1:], 0o755),
		os.WriteFile(r.base+"/gone", huge, 0o644), os.WriteFile(r.tree+"/new", huge, 0o644))
	if err != nil {
		t.Fatal(err)
	}
	patch, totals := r.write(t, Patch)
	if n := strings.Count(string(patch), "\nGIT binary patch\n"); n != 5 || totals.Files != 5 || totals.LeftOut != 0 {
		t.Errorf("%d binary files, totals %+v", n, totals)
	}
	if _, err := gitIn(t, r.base, patch, "apply", "--binary"); err != nil {
		t.Fatal(err)
	}
	sameTree(t, asGit(snapshot(t, r.base)), asGit(snapshot(t, r.tree)))
}

// Paths that git refuses are left out, and only those: one has it refuse the whole patch.
func TestRefused(t *testing.T) {
	names := []string{
		".git/config", ".GIT/x", "a/.git", ".git./x", ".git /x", ".git. ./x", "git~1/x", "GIT~1", ".git:x/y", "a\\.git", "a\\.git\\x", ".git\\x",
		".gitx", ".gitmodules", ".gitattributes", ".gi/t", "git~2", "x.git/y", ".git.x", "git ~1", "a\\b", ".giT\u200c/x", "a:.git", ".g\xffit/x", "\"\\", "a/..b",
	}
	for _, link := range []bool{false, true} {
		for _, name := range names {
			r := newRig(t, t.TempDir(), t.TempDir())
			path := filepath.Join(r.tree, name)
			err := os.MkdirAll(filepath.Dir(path), 0o755)
			if link {
				err = errors.Join(err, os.Symlink("x", path))
			} else {
				err = errors.Join(err, os.WriteFile(path, []byte("x\n"), 0o644))
			}
			if err != nil {
				t.Fatal(err)
			}
			patch, totals := r.write(t, Patch)
			kind := "100644"
			if link {
				kind = "120000"
			}
			// What git says of a patch with the path in it.
			whole := "diff --git " + quoted("a/"+name) + " " + quoted("b/"+name) + "\nnew file mode " + kind + "\n--- /dev/null\n+++ " +
				headName("b/"+name, kind) + "\n@@ -0,0 +1 @@\n+x\n"
			_, err = gitIn(t, r.base, []byte(whole), "apply")
			if left := totals.LeftOut == 1; left != (err != nil) || left != (len(patch) == 0) {
				t.Errorf("%q, a link: %v: left out: %v; git: %v", name, link, left, err)
			}
		}
	}
}

// Who asks for such a path sees it; not who asks for a directory that it is in.
func TestRefusedAskedFor(t *testing.T) {
	r := newRig(t, t.TempDir(), t.TempDir())
	for _, name := range []string{"sub/.git/config", "sub/file"} {
		path := filepath.Join(r.tree, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("x\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for asked, want := range map[string][2]bool{"sub": {false, true}, "sub/.git": {true, false}, "sub/.git/config": {true, false}} {
		patch, totals := r.write(t, Patch, asked)
		shown := [2]bool{bytes.Contains(patch, []byte("+++ b/sub/.git/config\n")), bytes.Contains(patch, []byte("+++ b/sub/file\n"))}
		if shown != want || totals.LeftOut == 0 != want[0] {
			t.Errorf("%s: shown %v, want %v; %+v", asked, shown, want, totals)
		}
	}
}

// Names stand in patches as git writes them.
func TestNames(t *testing.T) {
	for _, tt := range [][2]string{
		{"plain", "b/plain"}, {"a b", "b/a b\t"}, {"a /b", `"b/a /b"`}, {"é", `"b/\303\251"`}, {"\"\\\n\t\x01\x7f", `"b/\"\\\n\t\001\177"`},
	} {
		if got := headName("b/"+tt[0], "100644"); got != tt[1] {
			t.Errorf("%q: %s; want %s", tt[0], got, tt[1])
		}
	}
}

// vast is a size that nobody can read to its end while a test lasts.
const vast = 1 << 40

// holes are files of that size that have no bytes but at their ends.
func holes(t *testing.T, text string, names ...string) {
	t.Helper()
	for _, name := range names {
		f, err := os.Create(name)
		if err == nil {
			_, err = f.WriteAt([]byte(text), vast-int64(len(text)))
		}
		if err != nil {
			t.Skip("no file of that size here: ", err)
		}
		if at, err := f.Seek(0, unix.SEEK_DATA); err != nil || at < vast/2 {
			t.Skip("no holes here: ", at, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// aged makes a file old: of two with one size and time nothing is compared.
func aged(name string) error { return os.Chtimes(name, time.Time{}, time.Unix(1, 0)) }

// TestPatchWithoutVastFiles: what git apply could not keep in memory is left out of a patch, and not read;
// the rest applies.
func TestPatchWithoutVastFiles(t *testing.T) {
	r := newRig(t, t.TempDir(), t.TempDir())
	holes(t, "end", r.base+"/gone", r.base+"/edit", r.tree+"/new", r.tree+"/turned")
	err := errors.Join(os.WriteFile(r.base+"/turned", []byte("1\n"), 0o644), os.WriteFile(r.base+"/small", []byte("1\n"), 0o644))
	holes(t, "END", r.tree+"/edit")
	if err = errors.Join(err, os.WriteFile(r.tree+"/small", []byte("2\n"), 0o644), aged(r.tree+"/small"), aged(r.tree+"/edit")); err != nil {
		t.Fatal(err)
	}
	patch, totals := r.write(t, Patch, "gone", "edit", "new", "turned", "small")
	if totals.LeftOut != 4 || totals.Files != 5 || bytes.Count(patch, []byte("diff --git ")) != 1 {
		t.Errorf("totals %+v:\n%.1000s", totals, patch)
	}
	if out, err := gitIn(t, r.base, patch, "apply"); err != nil {
		t.Error(out, err)
	}
}

// TestListOfVastFiles: where two files have holes nothing is read to compare them.
func TestListOfVastFiles(t *testing.T) {
	r := newRig(t, t.TempDir(), t.TempDir())
	holes(t, "end", r.base+"/edit", r.base+"/same")
	holes(t, "end", r.tree+"/same")
	holes(t, "END", r.tree+"/edit")
	if err := errors.Join(aged(r.tree+"/same"), aged(r.tree+"/edit")); err != nil {
		t.Fatal(err)
	}
	list, totals := r.write(t, List)
	if totals.Files != 1 || !bytes.Contains(list, []byte(`"edit"`)) {
		t.Errorf("totals %+v:\n%s", totals, list)
	}
}

// TestPatchOfHoles: zeros of holes and other zeros are the same in a patch.
func TestPatchOfHoles(t *testing.T) {
	r := newRig(t, t.TempDir(), t.TempDir())
	for seed := range uint64(12) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		for _, dir := range []string{r.base, r.tree} {
			size := maxText + 1 + rnd.Int64N(3*chunk)
			f, err := os.Create(filepath.Join(dir, fmt.Sprint(seed)))
			if err == nil {
				err = f.Truncate(size)
			}
			for range rnd.IntN(4) {
				if err == nil {
					_, err = f.WriteAt(bytes.Repeat([]byte{byte(rnd.IntN(2))}, rnd.IntN(chunk)), rnd.Int64N(size-chunk))
				}
			}
			if err = errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
	patch, totals := r.write(t, Patch)
	if totals.Files != 12 || totals.LeftOut+totals.Unreadable > 0 {
		t.Errorf("totals %+v", totals)
	}
	if out, err := gitIn(t, r.base, patch, "apply", "--binary"); err != nil {
		t.Fatal(out, err)
	}
	sameTree(t, asGit(snapshot(t, r.base)), asGit(snapshot(t, r.tree)))
}
