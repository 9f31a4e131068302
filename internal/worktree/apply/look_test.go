package apply

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
)

// bothSides is a session and somebody else who change the same files at random moments, and
// looks of the daemon in between.
type bothSides struct {
	*rig
	rand    *rand.Rand
	names   []string
	wrote   map[string]bool // by the session
	kept    map[string]bool // a look came before anybody changed the source's file
	touched map[string]bool // in the source
	edits   int
}

// edit changes some lines of a file, or removes it.
func (b *bothSides) edit(dir, name string) {
	old, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil || b.rand.IntN(8) == 0 {
		remove(b.t, dir, name)
		return
	}
	lines := strings.SplitAfter(string(old), "\n")
	for range 1 + b.rand.IntN(2) {
		lines[b.rand.IntN(len(lines)-1)] = fmt.Sprintf("%d\n", 100+b.rand.IntN(900))
	}
	write(b.t, dir, map[string]string{name: strings.Join(lines, "")})
	// Files of one size and the same times count as the same to who is not told what was touched.
	b.edits++
	at := time.Now().Add(time.Duration(b.edits) * time.Second)
	must(b.t, os.Chtimes(filepath.Join(dir, name), at, at))
}

func (b *bothSides) look() *Look {
	return &Look{
		Dir: b.job.Dir, Source: b.job.Source, Owner: b.job.Owner, Since: b.job.Since,
		Begun: func(dir string) ([]byte, error) { // they stay the same ones
			fd, err := unix.Open(filepath.Join(b.source, dir), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				return nil, nil //nolint:nilerr // it is not there, or is no directory
			}
			defer unix.Close(fd)
			return beneath.Handle(fd)
		},
	}
}

func (b *bothSides) step() {
	name := b.names[b.rand.IntN(len(b.names))]
	switch b.rand.IntN(4) {
	case 0, 1:
		b.edit(b.work, name)
		b.wrote[name] = true
	case 2:
		b.edit(b.source, name)
		b.touched[name] = true
	default:
		_, _, err := b.look().Keep(b.t.Context(), slices.Sorted(maps.Keys(b.wrote)), 1<<20)
		must(b.t, err)
		for name := range b.wrote {
			b.kept[name] = b.kept[name] || !b.touched[name]
		}
	}
}

// oracle is what git makes of both sides; false for a conflict.
func (b *bothSides) oracle(name string) (string, bool) {
	out, err := exec.Command("git", "merge-file", "-p", b.source+"/"+name, b.base+"/"+name, b.work+"/"+name).Output()
	return string(out), err == nil
}

// TestBothSides: a change is known to be against another file than the session began with
// exactly where somebody has touched the source's, its base is that file, and what --merge makes of a file whose base was kept is what git makes of it.
func TestBothSides(t *testing.T) {
	t.Parallel()
	merged := 0
	for seed := range uint64(40) {
		files, b := map[string]string{}, &bothSides{rand: rand.New(rand.NewPCG(seed, 1)), wrote: map[string]bool{}, kept: map[string]bool{}, touched: map[string]bool{}}
		for i := range 6 {
			name := fmt.Sprintf("d%d/f%d", i%2, i)
			files[name], b.names = strings.Repeat(numbers, 4), append(b.names, name)
		}
		b.rig = begin(t, tree(t, files))
		for range 30 {
			b.step()
		}
		merged += b.check(seed)
	}
	if merged < 10 {
		t.Errorf("only %d files were merged", merged)
	}
}

func (b *bothSides) check(seed uint64) (merged int) {
	b.t.Helper()
	before, is := look(b.t, b.source), look(b.t, b.work)
	var places []Place
	for _, name := range b.names {
		p := Place{Path: name, Status: client.ChangeModified, Kind: beneath.File}
		switch {
		case before[name] == is[name]:
			continue // the source has it
		case before[name] == "":
			p.Status = client.ChangeAdded
		case is[name] == "":
			p.Status, p.Kind = client.ChangeDeleted, ""
		}
		if b.wrote[name] {
			places = append(places, p)
		}
	}
	verdicts, err := b.look().Judge(b.t.Context(), places)
	must(b.t, err)
	for i, p := range places {
		// Of what was removed from the source before any look nothing tells.
		want := b.touched[p.Path] && (p.Status != client.ChangeAdded || b.kept[p.Path])
		v := verdicts[i]
		if known := want && b.kept[p.Path]; v.Changed != want || v.Known != known {
			b.t.Errorf("seed %d: %s (%s) is %+v, want %v, %v", seed, p.Path, p.Status, v, want, known)
		}
		if v.Known {
			base, is := b.look().Base(p.Path), look(b.t, b.base)[p.Path]
			if got := fmt.Sprintf("file %o %s", base.Perm, base.Content); !base.File || got != is {
				b.t.Errorf("seed %d: the base of %s is %q, want %q", seed, p.Path, got, is)
			}
		}
		if p.Status != client.ChangeModified || !v.Known {
			continue
		}
		want2, clean := b.oracle(p.Path)
		_, err := b.applyArchive(client.ApplyRequest{Merge: true, Paths: []string{p.Path}}, b.agents(p.Path))
		now := look(b.t, b.source)[p.Path]
		switch {
		case clean && (err != nil || now != "file 644 "+want2):
			b.t.Errorf("seed %d: merged %s: %v: %q, want %q", seed, p.Path, err, now, want2)
		case !clean && (err == nil || now != before[p.Path]):
			b.t.Errorf("seed %d: %s is a conflict for git: %v, %q", seed, p.Path, err, now)
		case clean:
			merged++
		}
	}
	return merged
}

// TestClockSetBack: a file that was changed while the clock was behind the session's
// beginning is in the way, and is no base of anybody.
func TestClockSetBack(t *testing.T) {
	g := begin(t, tree(t, map[string]string{"f": numbers}))
	write(t, g.work, map[string]string{"f": "mine"})
	write(t, g.source, map[string]string{"f": "theirs"})
	const day = int64(24 * 3600e9)
	g.job.Since += day // the same as if the clock was a day ahead then
	l := &Look{Dir: g.job.Dir, Source: g.job.Source, Owner: g.job.Owner, Since: g.job.Since}
	place := []Place{{"f", client.ChangeModified, beneath.File}}
	for _, back := range []int64{0, day} {
		g.job.Back, l.Back = back, back
		verdicts, err := l.Judge(t.Context(), place)
		must(t, err)
		kept, _, err := l.Keep(t.Context(), []string{"f"}, 1<<20)
		must(t, err)
		must(t, os.RemoveAll(g.job.Dir))
		_, err = g.apply(client.ApplyRequest{DryRun: true})
		if known := back > 0; verdicts[0].Changed != known || (kept == 0) != known || (err != nil) != known {
			t.Errorf("back %d: changed %v, %d bytes kept, %v", back, verdicts[0].Changed, kept, err)
		}
	}
}

// TestClockAway: a file that was changed while the clock was behind, after its base was kept, is in the way, though
// the clock is right again and its change time says nothing: it is not what was kept.
func TestClockAway(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]int{"a base for itself": 1, "a pack": manyBases + 1} {
		old, mine := make(map[string]string), make(map[string]string)
		var paths []string
		var places []Place
		for i := range files {
			p := fmt.Sprintf("f%02d", i)
			old[p], mine[p] = numbers, strings.Replace(numbers, "1\n", "mine\n", 1)
			paths, places = append(paths, p), append(places, Place{p, client.ChangeModified, beneath.File})
		}
		g := begin(t, tree(t, old))
		write(t, g.work, mine)
		g.job.Since += int64(24 * 3600e9) // the same as if the clock is a day behind from here on
		l := &Look{Dir: g.job.Dir, Source: g.job.Source, Owner: g.job.Owner, Since: g.job.Since}
		if kept, _, err := l.Keep(t.Context(), paths, 1<<20); err != nil || kept != int64(files*len(numbers)) {
			t.Fatalf("%s: %d bytes kept, %v", name, kept, err)
		}
		theirs := func(p, content string, changed bool) {
			t.Helper()
			write(t, g.source, map[string]string{p: content})
			verdicts, err := l.Judge(t.Context(), places)
			must(t, err)
			for i, v := range verdicts {
				if want := changed && places[i].Path == p; v.Changed != want || v.Known != want {
					t.Errorf("%s, %s: %+v", name, places[i].Path, v)
				}
			}
			var c *ConflictError
			_, err = g.apply(client.ApplyRequest{DryRun: true})
			if errors.As(err, &c) != changed || changed && (len(c.Conflicts) != 1 || c.Conflicts[0].Path != p) {
				t.Errorf("%s, %s: %v", name, p, err)
			}
		}
		last := paths[files-1]
		theirs(last, numbers, false) // as it was, in another moment
		theirs(last, numbers+"more\n", true)
		changed := []byte(numbers)
		changed[len(changed)-2] = 'X' // of the same size
		theirs(last, string(changed), true)
		_, err := g.apply(client.ApplyRequest{Merge: true})
		must(t, err)
		b, err := os.ReadFile(filepath.Join(g.source, last))
		if want := strings.Replace(string(changed), "1\n", "mine\n", 1); err != nil || string(b) != want {
			t.Errorf("%s: merged is %q, %v", name, b, err)
		}
	}
}

// TestAsItBegan: a file that the session has as it began with it is no change, whatever somebody has made of the
// source's, and whosever that is: its owner may not read what was kept.
func TestAsItBegan(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]int{"a base for itself": 1, "a pack": manyBases + 1} {
		old, theirs := make(map[string]string), make(map[string]string)
		for i := range files {
			p := fmt.Sprintf("f%02d", i)
			old[p], theirs[p] = numbers, "theirs"
		}
		g := begin(t, tree(t, old))
		l := &Look{Dir: g.job.Dir, Source: g.job.Source, Owner: g.job.Owner, Since: g.job.Since}
		_, _, err := l.Keep(t.Context(), slices.Sorted(maps.Keys(old)), 1<<20)
		must(t, err)
		write(t, g.source, theirs)
		before := look(t, g.source)
		if a, err := g.apply(client.ApplyRequest{}); err != nil || a.WrittenCount != 0 {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
		if diffs := differ(look(t, g.source), before); diffs != nil {
			t.Errorf("%s: %q", name, diffs)
		}
	}
}

// TestKeepOfAnotherDirectory: what is in a directory is kept where that is surely the one that the session began
// with: by its handle, and without one only where it has not changed since.
func TestKeepOfAnotherDirectory(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		do    func(t *testing.T, dir string)
		knows bool
		kept  bool
	}{
		"as it was, known":       {func(*testing.T, string) {}, true, true},
		"as it was, not known":   {func(*testing.T, string) {}, false, true},
		"changed, known":         {func(t *testing.T, dir string) { must(t, os.WriteFile(dir+"/d/new", nil, 0o644)) }, true, true},
		"changed, not known":     {func(t *testing.T, dir string) { must(t, os.WriteFile(dir+"/d/new", nil, 0o644)) }, false, false},
		"another one, known":     {func(t *testing.T, dir string) { trade(t, dir+"/d", dir+"/other") }, true, false},
		"another one, not known": {func(t *testing.T, dir string) { trade(t, dir+"/d", dir+"/other") }, false, false},
		"another below, known":   {func(t *testing.T, dir string) { trade(t, dir+"/d/in", dir+"/other/in") }, true, false},
	} {
		r := begin(t, tree(t, map[string]string{"d/in/f": "1\n", "other/in/f": "2\n"}))
		l := (&bothSides{rig: r}).look()
		l.Begun = nil
		handles := map[string][]byte{}
		for _, dir := range []string{"d", "d/in"} {
			f, err := os.Open(filepath.Join(r.source, dir))
			must(t, err)
			handles[dir], err = beneath.Handle(int(f.Fd()))
			must(t, err)
			must(t, f.Close())
		}
		if tt.knows && handles["d"] == nil {
			t.Skip("this file system has no handles")
		}
		if tt.knows {
			l.Begun = func(dir string) ([]byte, error) { return handles[dir], nil }
		}
		tt.do(t, r.source)
		n, also, err := l.Keep(t.Context(), []string{"d/in/f", "d"}, 1<<20)
		must(t, err)
		if kept := n > 0; kept != tt.kept || !kept && also.There["d/in/f"].Is != Some {
			t.Errorf("%s: kept %d bytes, %+v", name, n, also)
		}
		if note := also.There["d"]; strings.HasPrefix(name, "another one") && note.Handle != "" {
			t.Errorf("%s: the directory is noted as the one that was there: %+v", name, note)
		}
	}
}

// trade has two paths change places.
func trade(t *testing.T, a, b string) {
	t.Helper()
	must(t, unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE))
}

// TestKeepWithoutRoom: where the host has no room for what a source has, that there was something
// is told of each file, and nothing more is kept.
func TestKeepWithoutRoom(t *testing.T) {
	t.Parallel()
	r := begin(t, tree(t, map[string]string{"a": "1\n", "b": "2\n", "c": "", "d": "4\n"}))
	b := &bothSides{rig: r}
	for most := range 5 {
		l, left := b.look(), most
		l.Dir = t.TempDir()
		l.Room = func(int64) error {
			if left--; left < 0 {
				return errors.New("the disk is nearly full")
			}
			return nil
		}
		_, also, err := l.Keep(t.Context(), []string{"a", "b", "c", "d", "gone"}, 1<<20)
		must(t, err)
		if len(also.There) != 4-most || !slices.Equal(also.Absent, []string{"gone"}) {
			t.Errorf("room for %d: %+v", most, also)
		}
		for p, n := range also.There {
			if n.Is != Some {
				t.Errorf("room for %d: %s is %+v", most, p, n)
			}
		}
	}
}
