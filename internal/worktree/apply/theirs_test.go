package apply

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
)

// doing is what one side does at the path p, where a file, nothing or a directory was.
type doing struct {
	name string
	do   func(t *testing.T, dir string)
}

var (
	begins  = []map[string]string{{"p": "base"}, {"x": "x"}, {"p/x": "base", "p/y/z": "base"}}
	session = []doing{
		{"a file", func(t *testing.T, dir string) { remove(t, dir, "p"); write(t, dir, map[string]string{"p": "session"}) }},
		{"a link", func(t *testing.T, dir string) { remove(t, dir, "p"); write(t, dir, map[string]string{"p": "-> s"}) }},
		{"a directory", func(t *testing.T, dir string) {
			remove(t, dir, "p")
			write(t, dir, map[string]string{"p/session": "session"})
		}},
		{"nothing", func(t *testing.T, dir string) { remove(t, dir, "p") }},
		{"another name", func(_ *testing.T, dir string) { _ = os.Rename(dir+"/p", dir+"/q") }},
	}
	person = []doing{
		{"nothing", func(*testing.T, string) {}},
		{"a changed file", func(t *testing.T, dir string) {
			for _, name := range []string{"p/y/z", "p"} {
				if info, err := os.Lstat(dir + "/" + name); err == nil && info.Mode().IsRegular() {
					must(t, os.WriteFile(dir+"/"+name, []byte("person"), 0o644))
				}
			}
		}},
		{"a new file", func(t *testing.T, dir string) { remove(t, dir, "p"); write(t, dir, map[string]string{"p": "person"}) }},
		{"a link", func(t *testing.T, dir string) {
			remove(t, dir, "p")
			write(t, dir, map[string]string{"p": "-> person"})
		}},
		{"a directory of files", func(t *testing.T, dir string) {
			remove(t, dir, "p")
			write(t, dir, map[string]string{"p/x": "person", "p/sub/f": "person"})
		}},
		{"an empty directory", func(t *testing.T, dir string) { remove(t, dir, "p"); write(t, dir, map[string]string{"p/": ""}) }},
		{"a new file in the directory", func(t *testing.T, dir string) {
			if info, err := os.Lstat(dir + "/p"); err == nil && info.IsDir() {
				write(t, dir, map[string]string{"p/new": "person", "p/more/new": "person"})
			}
		}},
		{"a file saved by a rename", func(t *testing.T, dir string) {
			for _, name := range []string{"p/y/z", "p"} {
				if info, err := os.Lstat(dir + "/" + name); err == nil && info.Mode().IsRegular() {
					write(t, dir, map[string]string{"saved": "person"})
					must(t, os.Rename(dir+"/saved", dir+"/"+name))
				}
			}
		}},
		{"nothing any more", func(t *testing.T, dir string) { remove(t, dir, "p") }},
		{"another name", func(_ *testing.T, dir string) { _ = os.Rename(dir+"/p", dir+"/r") }},
		{"an old directory", func(t *testing.T, dir string) { remove(t, dir, "p"); must(t, os.Rename(dir+"/old", dir+"/p")) }},
		{"a FIFO", func(t *testing.T, dir string) { remove(t, dir, "p"); must(t, unix.Mkfifo(dir+"/p", 0o644)) }},
		{"a FIFO in the directory", func(t *testing.T, dir string) {
			if info, err := os.Lstat(dir + "/p"); err == nil && info.IsDir() {
				must(t, unix.Mkfifo(dir+"/p/fifo", 0o644))
			}
		}},
	}
)

// Whatever two sides make of a path, nothing of a person's is lost without force, and with force only
// what is told by its path, before and after. What is refused has changed nothing, and what is not
// written is told.
func TestTheirs(t *testing.T) {
	long := os.Getenv("TOOLD_TEST_LONG") != ""
	for i, base := range begins {
		for j, s := range session {
			for k, p := range person {
				for _, late := range []bool{false, true} { // compared with the source as it is by then, as overlays are
					for _, kept := range []bool{false, true} {
						if i == 1 && j >= 3 || !long && (!late || kept != ((i+j+k)%2 == 0)) {
							continue // nothing was there to be removed; or one of many
						}
						name := fmt.Sprintf("%d/%s/%s/late %v/kept %v", i, s.name, p.name, late, kept)
						t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
							t.Parallel()
							theirs(t, base, s, p, late, kept)
						})
					}
				}
			}
		}
	}
}

func theirs(t *testing.T, base map[string]string, s, p doing, late, kept bool) {
	all := maps.Clone(base)
	maps.Copy(all, map[string]string{"old/f": "old", "alone": "a"})
	g := begin(t, tree(t, all))
	s.do(t, g.work)
	if kept {
		l := Look{Dir: g.job.Dir, Source: g.job.Source, Owner: g.job.Owner, Since: g.job.Since}
		_, also, err := l.Keep(t.Context(), []string{"p", "p/x", "p/y", "p/y/z"}, 1<<20)
		must(t, err)
		notes := also.There
		for _, name := range also.Absent {
			notes[name] = Noted{Is: Nothing}
		}
		must(t, l.Note(notes))
	}
	archive := archiveOf(t, g.base, g.work)
	p.do(t, g.source)
	if late {
		archive = pack(t, slices.DeleteFunc(changesOf(t, g.source, g.work), func(e entry) bool {
			return e.Name != "p" && e.Name != "q" && !strings.HasPrefix(e.Name, "p/") && !strings.HasPrefix(e.Name, "q/")
		}))
	}
	before := look(t, g.source)
	mine := maps.Clone(before) // what is the person's
	for path, is := range look(t, g.base) {
		if mine[path] == is && p.name != "an old directory" {
			delete(mine, path)
		}
	}
	for _, r := range []client.ApplyRequest{{}, {Merge: true}, {Force: true}} {
		g.job.Request = r
		g.job.Request.DryRun = true
		would, refused := g.job.Run(t.Context(), bytes.NewReader(archive))
		if diffs := differ(look(t, g.source), before); diffs != nil {
			t.Fatalf("%+v: dry: %q", r, diffs)
		}
		g.job.Request = r
		did, err := g.job.Run(t.Context(), bytes.NewReader(archive))
		if fmt.Sprint(err) != fmt.Sprint(refused) {
			t.Errorf("%+v: %v, dry %v", r, err, refused)
		}
		after := look(t, g.source)
		if err != nil {
			if !errors.Is(err, fault.Conflict) || len(conflictsOf(err)) == 0 {
				t.Errorf("%+v: got %v", r, err)
			}
			if diffs := differ(after, before); diffs != nil {
				t.Errorf("%+v: refused, and %q", r, diffs)
			}
			continue
		}
		if would.DryRun = false; !reflect.DeepEqual(would, did) {
			t.Errorf("%+v: did %+v, dry %+v", r, did, would)
		}
		for path, is := range mine {
			if after[path] == is || strings.HasPrefix(is, "dir ") && strings.HasPrefix(after[path], "dir ") {
				continue
			}
			if !r.Force || !slices.Contains(did.Overwritten, path) {
				t.Errorf("%+v: %s was %q and is %q, and that is told by %+v", r, path, is, after[path], did)
			}
			if strings.HasPrefix(is, "p") {
				t.Errorf("%+v: %s was removed: %q", r, path, is)
			}
		}
		if did.KeptCount != len(did.Kept) || did.OverwrittenCount != len(did.Overwritten) || !r.Force && did.KeptCount+did.OverwrittenCount > 0 {
			t.Errorf("%+v: got %+v", r, did)
		}
		for path, is := range look(t, g.work) {
			if strings.HasPrefix(path, "p") && after[path] != is {
				t.Errorf("%+v: %s is %q, want %q: %+v", r, path, after[path], is, did)
			}
		}
		if left := after["p"]; s.name == "nothing" && left != "" && !slices.Contains(did.Kept, "p") && !slices.Contains(did.Skipped, "p") && before["p"] != "" {
			t.Errorf("%+v: p is there, and nothing says so: %+v", r, did)
		}
		return
	}
}
