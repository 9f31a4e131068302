package apply

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
)

// TestPack: what is kept of many paths at once is what is kept of each by itself, and whatever is
// torn of it is no base.
func TestPack(t *testing.T) {
	t.Parallel()
	files := map[string]string{"empty": "", "\xff\xfe": "no name\n", "line\nend": "x", "null": "\x00\n\x00", "json": "[]\n{}\n"}
	for i := range 40 {
		files[fmt.Sprintf("d%d/f%d", i%3, i)] = strings.Repeat(fmt.Sprint(i, "\n"), i*i*i)
	}
	r := begin(t, tree(t, files))
	b := &bothSides{rig: r}
	var paths []string
	for p := range files {
		paths = append(paths, p)
	}
	look := func(dir string) *Look {
		l := b.look()
		l.Dir = dir
		return l
	}
	one, many, forked := t.TempDir(), t.TempDir(), t.TempDir()
	for _, p := range paths {
		_, _, err := look(one).Keep(t.Context(), []string{p}, 1<<30)
		must(t, err)
	}
	half := len(paths) / 2
	for _, some := range [][]string{paths[:half], paths, paths} { // what is kept already is not kept again
		_, _, err := look(many).Keep(t.Context(), some, 1<<30)
		must(t, err)
	}
	packs := func() []string {
		found, err := filepath.Glob(many + "/" + baseDir + "/*")
		must(t, err)
		return found
	}
	if n := len(packs()); n != 2 {
		t.Fatalf("%d files are kept", n)
	}
	must(t, Inherit(t.Context(), forked, many))
	same := func(dir string, known bool) {
		t.Helper()
		l := look(dir)
		for _, p := range paths {
			must(t, os.WriteFile(filepath.Join(r.source, p), []byte("theirs"), 0o600))
		}
		var places []Place
		for _, p := range paths {
			places = append(places, Place{p, client.ChangeModified, beneath.File})
		}
		verdicts, err := l.Judge(t.Context(), places)
		must(t, err)
		for i, p := range paths {
			want, got := look(one).Base(p), l.Base(p)
			if want == nil || !verdicts[i].Changed || known != (got != nil) {
				t.Errorf("%q: changed %v, known %v, base %v, by itself %v", p, verdicts[i].Changed, verdicts[i].Known, got, want)
				continue
			}
			if known && (!verdicts[i].Known || !got.File || got.Perm != want.Perm || !bytes.Equal(got.Content, want.Content) || string(got.Content) != files[p]) {
				t.Errorf("%q: %+v, by itself %+v", p, got, want)
			}
		}
	}
	same(many, true)
	same(forked, true)
	for _, name := range packs() { // of all but the last bytes, of which the sums tell
		whole, err := os.ReadFile(name)
		must(t, err)
		line := bytes.IndexByte(whole, '\n')
		for at := line + 1; at < len(whole); at++ {
			whole[at] ^= 1
		}
		must(t, os.WriteFile(name, whole, 0o600))
	}
	l := look(many)
	for _, p := range paths {
		if got := l.Base(p); got != nil && files[p] != "" {
			t.Errorf("%q: %+v of what is damaged", p, got)
		}
	}
	for _, left := range []int64{1000, 100, 1, 0} {
		for _, name := range packs() {
			must(t, os.Truncate(name, left))
		}
		same(many, false)
	}
}
