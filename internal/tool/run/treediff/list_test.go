package treediff

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// lines reads a list strictly.
func lines(t testing.TB, data []byte) ([]Line, Totals) {
	t.Helper()
	var all []Line
	var last Last
	rest := bytes.SplitAfter(data, []byte("\n"))
	rest = rest[:len(rest)-1]
	for i, l := range rest {
		if i == len(rest)-1 {
			strict(t, l, &last)
			break
		}
		var line Line
		strict(t, l, &line)
		if line.Bytes != nil {
			if strings.ToValidUTF8(string(line.Bytes), "\ufffd") == string(line.Bytes) {
				t.Errorf("%q needs no bytes", line.Bytes)
			}
			line.Path, line.Bytes = string(line.Bytes), nil
		}
		all = append(all, line)
	}
	if last.Totals == nil {
		t.Fatalf("no end: %s", data)
	}
	return all, *last.Totals
}

func strict(t testing.TB, data []byte, v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
}

// expected are the changes between two snapshots, found by comparing all with all.
func expected(old, new map[string]seen) map[string]Status {
	want := make(map[string]Status)
	for p, o := range old {
		n, ok := new[p]
		switch {
		case !ok:
			want[p] = Deleted
		case o.kind != n.kind:
			want[p] = Type
		case o != n:
			want[p] = Modified
		}
	}
	for p := range new {
		if _, ok := old[p]; !ok {
			want[p] = Added
		}
	}
	return want
}

// checkList compares a list with what two snapshots say.
func checkList(t *testing.T, data []byte, totals Totals, old, new map[string]seen) {
	t.Helper()
	all, last := lines(t, data)
	want := expected(old, new)
	got := make(map[string]Status)
	var sum Totals
	for i, l := range all {
		if i > 0 && all[i-1].Path >= l.Path {
			t.Errorf("%q comes before %q", all[i-1].Path, l.Path)
		}
		got[l.Path] = l.Status
		o, n := old[l.Path], new[l.Path]
		if l.Kind != n.kind || l.OldKind != o.kind || l.Mode != modeOf(n) || l.OldMode != modeOf(o) ||
			l.Size != sizeOf(n) || l.OldSize != sizeOf(o) || l.Unreadable != "" {
			t.Errorf("%q: %+v; it was %+.50v and is %+.50v", l.Path, l, o, n)
		}
		binary := o.kind == File && strings.Contains(o.content, "\x00") || n.kind == File && strings.Contains(n.content, "\x00")
		if l.Binary != binary {
			t.Errorf("%q: binary is %v", l.Path, l.Binary)
		}
		if d := l.Added - l.Removed; !binary && d != countLines(n)-countLines(o) {
			t.Errorf("%q: %d lines added and %d removed, of %d and %d", l.Path, l.Added, l.Removed, countLines(o), countLines(n))
		}
		sum.Files++
		sum.Added += l.Added
		sum.Removed += l.Removed
	}
	for p, w := range want {
		if got[p] != w {
			t.Errorf("%q: %q; want %q", p, got[p], w)
		}
	}
	for p, g := range got {
		if want[p] == "" {
			t.Errorf("%q: %q; nothing differs", p, g)
		}
	}
	if last != sum || totals != sum {
		t.Errorf("totals %+v and %+v; want %+v", totals, last, sum)
	}
}

func modeOf(s seen) string {
	if s.kind != File && s.kind != Dir {
		return ""
	}
	return fmt.Sprintf("%04o", s.mode)
}

func sizeOf(s seen) int64 {
	if s.kind != File {
		return 0
	}
	return int64(len(s.content))
}

func countLines(s seen) int {
	if s.kind != File {
		return 0
	}
	n := strings.Count(s.content, "\n")
	if s.content != "" && !strings.HasSuffix(s.content, "\n") {
		n++
	}
	return n
}

// The list of random trees is what comparing everything with everything gives.
func TestList(t *testing.T) {
	eachTree(t, 11, 150, func(t *testing.T, rnd *rand.Rand, r *rig) {
		data, totals := r.write(t, List)
		checkList(t, data, totals, snapshot(t, r.base), snapshot(t, r.tree))
	})
}

// Pages together are the list; each has the totals of all.
func TestPages(t *testing.T) {
	eachTree(t, 12, 25, func(t *testing.T, rnd *rand.Rand, r *rig) {
		data, totals := r.write(t, List)
		want, _ := lines(t, data)
		var got []Line
		limit := 1 + rnd.IntN(4)
		for more, after := true, ""; more; {
			o := r.options(t, List)
			o.After, o.Limit = after, limit
			data, page := writeAll(t, o)
			part, _ := lines(t, data)
			more, page.More = page.More, false
			if page != totals || more && len(part) != limit || len(part) > limit {
				t.Fatalf("%d lines, more %v, totals %+v; want %+v", len(part), more, page, totals)
			}
			if got = append(got, part...); len(got) > 0 {
				after = got[len(got)-1].Path
			}
		}
		if len(got) != len(want) || !slices.EqualFunc(got, want, func(a, b Line) bool { return a.Path == b.Path && a.Status == b.Status }) {
			t.Errorf("%d lines in pages; want %d", len(got), len(want))
		}
	})
}

// Selected paths give the part of the list that they and what is below them have, with
// new directories on the way.
func TestSelection(t *testing.T) {
	eachTree(t, 13, 50, func(t *testing.T, rnd *rand.Rand, r *rig) {
		all := append(paths(t, r.base), paths(t, r.tree)...)
		all = append(all, "no/such", "a/b")
		var chosen []string
		for range 1 + rnd.IntN(3) {
			chosen = append(chosen, all[rnd.IntN(len(all))])
		}
		data, _ := r.write(t, List)
		whole, _ := lines(t, data)
		want := slices.DeleteFunc(whole, func(l Line) bool {
			return !slices.ContainsFunc(chosen, func(c string) bool {
				onWay := strings.HasPrefix(c, l.Path+"/") && l.Kind == Dir && l.OldKind != Dir
				return l.Path == c || strings.HasPrefix(l.Path, c+"/") || onWay
			})
		})
		data, totals := r.write(t, List, chosen...)
		got, _ := lines(t, data)
		if totals.Files != len(want) || !slices.EqualFunc(got, want, func(a, b Line) bool { return a.Path == b.Path && a.Status == b.Status }) {
			t.Errorf("%q: %+v; want %+v", chosen, got, want)
		}
	})
}

// Directories that are too large to hold, and deeper than those that stay open, are
// walked in parts. A path that is too long is counted.
func TestLargeAndDeep(t *testing.T) {
	r := newRig(t, t.TempDir(), t.TempDir())
	for i := range 500 {
		for _, dir := range []string{r.base, r.tree} {
			if err := os.WriteFile(fmt.Sprintf("%s/f%d", dir, i*7%500), []byte{byte(i)}, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	deep := strings.Repeat("d/", 500) + "f"
	for _, dir := range []string{r.base, r.tree} {
		if err := os.MkdirAll(filepath.Dir(dir+"/"+deep), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{deep, "d/d/z", strings.Repeat("d/", 200) + "z", "f111", "z"} {
		if err := os.WriteFile(r.tree+"/"+name, []byte("new\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(r.tree + "/f222"); err != nil {
		t.Fatal(err)
	}
	o := r.options(t, List)
	defer o.Base.Close()
	defer o.Tree.Close()
	var out bytes.Buffer
	w := &walk{ctx: t.Context(), o: o, budget: 4 * leastNodes}
	if err := w.run(newList(w, &out)); err != nil {
		t.Fatal(err)
	}
	if w.budget != 4*leastNodes {
		t.Errorf("a budget of %d entries is left of %d", w.budget, 4*leastNodes)
	}
	checkList(t, out.Bytes(), w.totals, snapshot(t, r.base), snapshot(t, r.tree))

	tooLong(t, r.tree)
	data, totals := r.write(t, List)
	if all, _ := lines(t, data); totals.Unreadable != 1 || len(all) != totals.Files {
		t.Errorf("with a path that is too long: %+v, %d lines", totals, len(all))
	}
}

// tooLong makes a file whose path is longer than any program can name.
func tooLong(t *testing.T, dir string) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_PATH, 0)
	name := strings.Repeat("x", 250)
	for i := 0; i < 20 && err == nil; i++ {
		if err = unix.Mkdirat(fd, name, 0o755); err == nil {
			var next int
			next, err = unix.Openat(fd, name, unix.O_PATH, 0)
			unix.Close(fd)
			fd = next
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
}

// A program that sets the times of a file back hides nothing.
func TestTimesSetBack(t *testing.T) {
	r := newRig(t, t.TempDir(), t.TempDir())
	for _, dir := range []string{r.base, r.tree} {
		if err := os.WriteFile(dir+"/f", []byte(filepath.Base(dir)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The next tick of the clock that change times are taken from.
	var base, tree unix.Stat_t
	for base.Ctim == tree.Ctim {
		if err := errors.Join(unix.Stat(r.base+"/f", &base), unix.UtimesNano(r.tree+"/f", []unix.Timespec{base.Atim, base.Mtim}), unix.Stat(r.tree+"/f", &tree)); err != nil {
			t.Fatal(err)
		}
	}
	if base.Mtim != tree.Mtim || base.Size != tree.Size {
		t.Fatalf("%+v and %+v", base, tree)
	}
	if _, totals := r.write(t, List); totals.Files != 1 {
		t.Errorf("totals %+v; want one change", totals)
	}
}

// What an overlay remembers of a base that was changed below it is no change of the tree.
func TestBaseRemoved(t *testing.T) {
	base := t.TempDir()
	for _, name := range []string{"gone", "kept", "replaced", "dir/x", "own/old"} {
		err := errors.Join(os.MkdirAll(filepath.Dir(base+"/"+name), 0o755), os.WriteFile(base+"/"+name, []byte(name), 0o644))
		if err != nil {
			t.Fatal(err)
		}
	}
	tree, unmount := overlay(t, base)
	defer unmount()
	r := newRig(t, base, tree)
	if _, totals := r.write(t, List); totals.Files != 0 { // now it remembers all
		t.Fatalf("%+v", totals)
	}
	held, err := os.ReadDir(tree)
	err = errors.Join(err, os.Remove(base+"/gone"), os.RemoveAll(base+"/dir"), os.WriteFile(base+"/new", []byte("new"), 0o644),
		os.Rename(base+"/new", base+"/replaced"), os.WriteFile(tree+"/own/mine", nil, 0o644))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(tree + "/gone"); err != nil || info.Sys().(*syscall.Stat_t).Nlink != 0 {
		t.Fatalf("the overlay has forgotten %v: %v, %v: the test proves nothing", held, info, err)
	}
	data, _ := r.write(t, List)
	if all, _ := lines(t, data); len(all) != 1 || all[0].Path != "own/mine" {
		t.Errorf("got %+v", all)
	}
}
