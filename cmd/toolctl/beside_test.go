package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
)

func changed(path string) *client.Change {
	return &client.Change{Path: path, Kind: "file", Stale: true}
}

// TestBesideElsewhere: who may write where a patch is can put another directory, or a link, into the place
// of the one that files are saved in. Nothing is written there.
func TestBesideElsewhere(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(dir, victim string) error{
		"link":      func(dir, victim string) error { return os.Symlink(victim, dir) },
		"directory": func(dir, victim string) error { return os.Rename(victim, dir) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			victim := filepath.Join(top, "victim")
			if err := os.MkdirAll(filepath.Join(victim, "sub"), 0o755); err != nil {
				t.Fatal(err)
			}
			dir, root, err := newDirBeside(filepath.Join(top, "x.patch"))
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			if err := errors.Join(os.Rename(dir, dir+".old"), replace(dir, victim)); err != nil {
				t.Fatal(err)
			}
			f := &besideFetch{beside: &beside{dir: dir}, root: root}
			if _, err := f.write(changed("sub/f"), strings.NewReader("x"), 1); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(filepath.Join(dir, "sub/f")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("it was written elsewhere: %v", err)
			}
			if b, err := os.ReadFile(filepath.Join(dir+".old", "sub/f")); err != nil || string(b) != "x" {
				t.Errorf("%q, %v", b, err)
			}
			// Nor is it where a link in the directory leads.
			if err := os.Symlink(top, filepath.Join(dir+".old", "out")); err != nil {
				t.Fatal(err)
			}
			if _, err := f.write(changed("out/f"), strings.NewReader("x"), 1); err == nil {
				t.Error("it was written through a link")
			}
		})
	}
	other, root, err := newDirBeside(filepath.Join(t.TempDir(), "gone", "x.patch"))
	if err == nil {
		t.Errorf("%s was made, %v", other, root.Close())
	}
}

// TestBesideWrite: a file that has grown beyond what there is room for is not saved in part.
func TestBesideWrite(t *testing.T) {
	t.Parallel()
	dir, root, err := newDirBeside(filepath.Join(t.TempDir(), "x.patch"))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	f := &besideFetch{beside: &beside{dir: dir}, root: root}
	if n, err := f.write(changed("f"), strings.NewReader("1234"), 3); err == nil {
		t.Errorf("%d bytes", n)
	}
	if _, err := os.Lstat(filepath.Join(dir, "f")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	x := changed("f")
	x.Mode = "0755"
	if n, err := f.write(x, strings.NewReader("1234"), 4); err != nil || n != 4 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if info, err := os.Lstat(filepath.Join(dir, "f")); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestBesideFailure: what an apply has not written is lost, however its name is shown and however many there are.
func TestBesideFailure(t *testing.T) {
	t.Parallel()
	names := []string{`a\b`, "x ", "\xff", "a\x01", "plain", `"q`, "ü"}
	b := &beside{}
	for _, n := range names {
		x := changed("")
		x.Bytes = []byte(n)
		b.lose(x, "why")
	}
	shown := func(list ...string) (all []string) {
		for _, n := range list {
			all = append(all, plain.Name(n))
		}
		return all
	}
	for _, tt := range []struct {
		applied *client.Applied
		lost    bool
	}{
		{nil, true},
		{&client.Applied{}, false},
		{&client.Applied{Skipped: shown(names[0]), SkippedCount: 1}, true},
		{&client.Applied{Skipped: shown(names[1]), SkippedCount: 1}, true},
		{&client.Applied{Sensitive: shown(names[2]), SensitiveCount: 1}, true},
		{&client.Applied{Skipped: shown(names[3]), SkippedCount: 1}, true},
		{&client.Applied{Skipped: shown("other"), SkippedCount: 1}, false},
		{&client.Applied{Skipped: shown("other"), SkippedCount: 2}, true}, // one of them has no name
	} {
		if err := b.failure(tt.applied); (err != nil) != tt.lost {
			t.Errorf("%+v: %v", tt.applied, err)
		}
	}
	b = &beside{unnamed: 1}
	if b.failure(&client.Applied{}) == nil {
		t.Error("what has no name is never applied")
	}
}

// TestBesideRepository: files that git would obey are not saved together.
func TestBesideRepository(t *testing.T) {
	t.Parallel()
	var list []client.Change
	for _, n := range []string{"r/HEAD", "r/config", "r/objects/x", "r/refs/y", "r/deep/er", "HEAD", "a/objects/x", "a/refs/x", ".git/config", "s/.GIT/x", "f"} {
		list = append(list, *changed(n))
	}
	var kept []string
	b := &beside{}
	for _, x := range b.sort(list) {
		kept = append(kept, x.Path)
	}
	if got := strings.Join(kept, " "); got != "HEAD a/objects/x a/refs/x f" || len(b.lost) != 5 {
		t.Errorf("%s, lost %v", got, b.lost)
	}
}
