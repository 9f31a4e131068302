package state

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/sandbox"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// made is the directory of a sandbox.
func made(t *testing.T) Dir {
	t.Helper()
	d := Dir{Path: filepath.Join(t.TempDir(), "ses_1"), Sync: true}
	b := Begin(sandbox.ID{SessionID: "ses_1", Owner: "me"}, "runc")
	must(t, d.Make(&b, func(dir string) error { return os.Mkdir(filepath.Join(dir, "control"), 0o700) }))
	return d
}

// A directory is there with all that belongs to it, or not at all, and once.
func TestMake(t *testing.T) {
	d := made(t)
	r, err := Read[Base](d)
	if err != nil || r.Owner != "me" || r.Runtime != "runc" || r.BootID != BootID() {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := os.Stat(d.File("control")); err != nil {
		t.Error(err)
	}
	if err := d.Make(r, func(string) error { return nil }); err == nil {
		t.Error("it was made twice")
	}
	full := errors.New("full")
	other := Dir{Path: filepath.Join(filepath.Dir(d.Path), "ses_2")}
	if err := other.Make(r, func(string) error { return full }); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(d.Path)); err != nil || len(left) != 1 {
		t.Errorf("there are %v, %v", left, err)
	}
}

// A file is what it was, or what it is to be.
func TestFileIsWhole(t *testing.T) {
	d := made(t)
	must(t, d.Keep("manifest", func(w io.Writer) error { _, err := io.WriteString(w, "1\n"); return err }))
	if err := d.Keep("manifest", func(w io.Writer) error {
		_, _ = io.WriteString(w, "half")
		return io.ErrUnexpectedEOF
	}); err == nil {
		t.Error("no error")
	}
	if data, err := os.ReadFile(d.File("manifest")); string(data) != "1\n" {
		t.Errorf("got %q, %v", data, err)
	}
}

// A record under another's name is nobody's.
func TestReadRefuses(t *testing.T) {
	d := made(t)
	other := Dir{Path: filepath.Join(filepath.Dir(d.Path), "ses_2")}
	must(t, os.Rename(d.Path, other.Path))
	if r, err := Read[Base](other); err == nil {
		t.Errorf("got %+v", r)
	}
	must(t, os.WriteFile(other.File(RecordName), nil, 0o600))
	if r, err := Read[Base](other); err == nil {
		t.Errorf("got %+v of nothing", r)
	}
	if _, err := Read[Base](d); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("where nothing is: %v", err)
	}
}

func TestLives(t *testing.T) {
	id := sandbox.ID{SessionID: "ses_1", Incarnation: "one", Owner: "me"}
	for name, tt := range map[string]struct {
		change func(*Base)
		lives  bool
	}{
		"a live one":        {func(*Base) {}, true},
		"another's":         {func(b *Base) { b.Owner = "you" }, false},
		"of another time":   {func(b *Base) { b.BootID = "an earlier one" }, false},
		"half made":         {func(b *Base) { b.PID = 0 }, false},
		"an earlier of its": {func(b *Base) { b.Incarnation = "none" }, false},
	} {
		b := Begin(id, "runc")
		b.PID = 7
		tt.change(&b)
		if err := b.Lives(&id); (err == nil) != tt.lives || err != nil && !errors.Is(err, sandbox.ErrGone) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Labels come back as the record that they are of; those that earlier daemons have
// written are the same.
func TestLabels(t *testing.T) {
	rec := sandbox.Record{ID: sandbox.ID{SessionID: "ses_1", Incarnation: "one", Owner: "me", UIDBase: 65536}, Runtime: "runc"}
	earlier := map[string]string{
		"toold.owner": "me", "toold.session": "ses_1", "toold.incarnation": "one", "toold.runtime": "runc", "toold.uid-base": "65536",
	}
	if got := Labels(&rec); !maps.Equal(got, earlier) {
		t.Errorf("labels %q", got)
	}
	if got, err := Labelled(earlier); err != nil || *got != rec {
		t.Errorf("got %+v, %v", got, err)
	}
	for name, value := range map[string]string{
		"toold.owner": "", "toold.session": "../x", "toold.incarnation": "", "toold.uid-base": "4294967296",
	} {
		bad := maps.Clone(earlier)
		bad[name] = value
		if got, err := Labelled(bad); err == nil {
			t.Errorf("%s %q: got %+v", name, value, got)
		}
	}
}

// Of what has no name, a sweep leaves nothing, unless somebody works there.
func TestSweep(t *testing.T) {
	needs.OpenAt2(t)
	d := made(t)
	above := filepath.Dir(d.Path)
	for _, name := range []string{NewPrefix + "1", oldPrefix + "ses_0"} {
		must(t, os.Mkdir(filepath.Join(above, name), 0o700))
	}
	lock, err := Lock(above, unix.LOCK_SH)
	must(t, err)
	must(t, Sweep(above))
	if left, err := os.ReadDir(above); err != nil || len(left) != 3 {
		t.Errorf("while somebody works: %v, %v", left, err)
	}
	must(t, lock.Close())
	must(t, Sweep(above))
	if left, err := os.ReadDir(above); err != nil || len(left) != 1 || left[0].Name() != "ses_1" {
		t.Errorf("left: %v, %v", left, err)
	}
	must(t, d.Remove())
	must(t, d.Remove())
	if left, err := os.ReadDir(above); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
