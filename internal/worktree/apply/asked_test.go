package apply

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

// TestCutOff: wherever the program dies in a job whose end somebody waits for, the words about it are
// true of the source, before Recover and after it, whatever was said of an older one; they stay until a later job has succeeded, and
// there are none where the end was told.
func TestCutOff(t *testing.T) {
	base := tree(t, map[string]string{"edit": "old", "gone": "g", "dir/x": "x"})
	g := begin(t, base)
	write(t, g.work, map[string]string{"edit": "new", "new/f": "f"})
	remove(t, g.work, "gone")
	archive := filepath.Join(t.TempDir(), "archive")
	must(t, os.WriteFile(archive, archiveOf(t, base, g.work), 0o600))
	old, now := look(t, base), look(t, g.work)
	const nothing, rest = "before anything was written", "the rest follows"
	seen := map[string]int{}
	for n := 1; ; n++ {
		source := copyTree(t, base)
		c := child{State: filepath.Join(t.TempDir(), "state"), Source: source, Archive: archive, Since: tick(), Kill: n, Ask: true}
		if n%2 == 0 {
			must(t, os.MkdirAll(c.State, 0o700))
			must(t, os.WriteFile(filepath.Join(c.State, cutFile), []byte("one last year, "+nothing), 0o600))
		}
		killed := c.run(t)
		words := CutOff(c.State)
		got := look(t, source)
		for name := range got {
			if strings.HasPrefix(filepath.Base(name), ".toold-") {
				delete(got, name) // it goes with Recover
			}
		}
		is := "in part"
		switch {
		case differ(got, old) == nil:
			is = "as it was"
		case differ(got, now) == nil:
			is = "as it is to be"
		}
		_, err := os.Lstat(c.State)
		switch began := err == nil; {
		case words == "" && killed && began && is != "as it was",
			strings.Contains(words, nothing) && is != "as it was",
			strings.Contains(words, "all of it") && is != "as it is to be",
			words != "" && is == "in part" && !strings.Contains(words, rest):
			t.Errorf("step %d: the source is %s, and it is said %q", n, is, words)
		}
		if !killed {
			break
		}
		for range 2 {
			_, err = Recover(t.Context(), c.State)
			must(t, err)
		}
		after := CutOff(c.State)
		written := differ(look(t, source), now) == nil
		if words != "" && after == "" || after != "" && strings.Contains(after, nothing) == written || strings.Contains(after, rest) {
			t.Errorf("step %d: written %v, and it is said %q, after %q", n, written, after, words)
		}
		if n%9 == 0 && after != "" {
			g.then(t, c, after)
		}
		switch {
		case after == "":
			seen["no words"]++
		case strings.Contains(after, "The next one finished it: 3 paths written to the source, 1 removed there"):
			seen["finished"]++
		case strings.Contains(after, "when all of it was written"):
			seen["done"]++
		case strings.Contains(after, nothing):
			seen["nothing"]++
		}
		wipe(t, source)
	}
	if seen["finished"] < 5 || seen["done"] < 1 || seen["nothing"] < 5 {
		t.Errorf("that proves nothing: %v", seen)
	}
}

// then makes jobs after one that was cut off.
func (g *rig) then(t *testing.T, c child, words string) {
	t.Helper()
	source, err := os.Open(c.Source)
	must(t, err)
	defer source.Close()
	j := Job{Dir: c.State, Source: source, Owner: owner(), Since: c.Since, Ask: true}
	for _, j.Request = range []client.ApplyRequest{{DryRun: true}, {Force: true}} {
		_, err = j.Run(t.Context(), bytes.NewReader(archiveOf(t, c.Source, g.work)))
		must(t, err)
		if got := CutOff(c.State); got != words {
			t.Errorf("%+v: it is said %q, before %q", j.Request, got, words)
		}
		Told(c.State, !j.Request.DryRun)
	}
	if got := CutOff(c.State); got != "" {
		t.Errorf("after another one it is said %q", got)
	}
	_, err = j.Run(t.Context(), bytes.NewReader(archiveOf(t, c.Source, g.work)))
	must(t, err)
	if got := CutOff(c.State); got != "" {
		t.Errorf("of one that this process has made it is said %q", got)
	}
}

// TestCutOffChanged: what was left alone when it was finished is counted.
func TestCutOffChanged(t *testing.T) {
	base := tree(t, map[string]string{"a": "old", "b": "old"})
	g := begin(t, base)
	write(t, g.work, map[string]string{"a": "new", "b": "new"})
	archive := filepath.Join(t.TempDir(), "archive")
	must(t, os.WriteFile(archive, archiveOf(t, base, g.work), 0o600))
	c := child{State: filepath.Join(t.TempDir(), "state"), Source: copyTree(t, base), Archive: archive, Since: tick(), At: "committed renamed", Ask: true}
	if !c.run(t) {
		t.Fatal("it was not killed")
	}
	write(t, c.Source, map[string]string{"a": "mine"})
	if got := CutOff(c.State); !strings.Contains(got, "the rest follows") {
		t.Errorf("before: %q", got)
	}
	_, err := Recover(t.Context(), c.State)
	must(t, err)
	if got := CutOff(c.State); !strings.Contains(got, "1 path written") || !strings.Contains(got, "meanwhile: 1. See") {
		t.Errorf("after: %q", got)
	}
}

// TestCutOffUnasked: one that no note was made of, as by an older daemon, is told when it was finished.
func TestCutOffUnasked(t *testing.T) {
	base := tree(t, map[string]string{"a": "old"})
	g := begin(t, base)
	write(t, g.work, map[string]string{"a": "new", "b": "new"})
	archive := filepath.Join(t.TempDir(), "archive")
	must(t, os.WriteFile(archive, archiveOf(t, base, g.work), 0o600))
	for at, want := range map[string]string{
		"committed renamed": "an apply was cut off in the middle. It is finished now: 2 paths written to the source, 0 removed there",
		"plan renamed":      "", // nothing was written
	} {
		c := child{State: filepath.Join(t.TempDir(), "state"), Source: copyTree(t, base), Archive: archive, Since: tick(), At: at}
		if !c.run(t) {
			t.Fatalf("%s: it was not killed", at)
		}
		_, err := Recover(t.Context(), c.State)
		must(t, err)
		if got := CutOff(c.State); got != want {
			t.Errorf("%s: it is said %q, want %q", at, got, want)
		}
	}
}

// TestCutOffDurable: that somebody waits is on the disk, whole, before anything else of the job is.
func TestCutOffDurable(t *testing.T) {
	base := tree(t, map[string]string{"a": "old"})
	g := begin(t, base)
	write(t, g.work, map[string]string{"a": "new"})
	archive := filepath.Join(t.TempDir(), "archive")
	must(t, os.WriteFile(archive, archiveOf(t, base, g.work), 0o600))
	for at, told := range map[string]bool{"asked written": false, "asked renamed": true, "spool made": true} {
		c := child{State: filepath.Join(t.TempDir(), "state"), Source: copyTree(t, base), Archive: archive, Since: tick(), At: at, Ask: true}
		if !c.run(t) {
			t.Fatalf("%s: it was not killed", at)
		}
		if got := CutOff(c.State); strings.Contains(got, "before anything was written") != told {
			t.Errorf("%s: it is said %q", at, got)
		}
		_, err := Recover(t.Context(), c.State)
		must(t, err)
		if left, _ := filepath.Glob(filepath.Join(c.State, "*"+newSuffix)); len(left) > 0 {
			t.Errorf("%s: left are %q", at, left)
		}
	}
}
