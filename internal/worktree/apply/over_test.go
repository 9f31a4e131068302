package apply

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/fault"
)

// at calls f at the first step of that name, until the test is over.
func at(t *testing.T, name string, f func()) {
	done := false
	step = func(s string) {
		if s == name && !done {
			done = true
			f()
		}
	}
	t.Cleanup(func() { step = func(string) {} })
}

// Who gives up before the commit has changed nothing; after it, all is done.
func TestCancelled(t *testing.T) {
	for name, done := range map[string]bool{
		"content kept": false, "plan renamed": false, "staged": false, "synced": false, committedFile + " renamed": true, "task": true,
	} {
		t.Run(name, func(t *testing.T) {
			g := begin(t, tree(t, map[string]string{"a": "old", "gone/x": "x"}))
			write(t, g.work, map[string]string{"a": "new", "b": "new", "c": "new"})
			remove(t, g.work, "gone")
			want := look(t, g.source)
			if done {
				want = look(t, g.work)
			}
			archive := archiveOf(t, g.base, g.work)
			ctx, cancel := context.WithCancelCause(t.Context())
			over := errors.New("over")
			at(t, name, func() { cancel(over) })
			_, err := g.job.Run(ctx, bytes.NewReader(archive))
			if done && err != nil || !done && !errors.Is(err, over) {
				t.Errorf("got %v", err)
			}
			if diffs := differ(look(t, g.source), want); diffs != nil {
				t.Error(diffs)
			}
			tidy(t, g.job.Dir)
		})
	}
}

// Two jobs of a directory go one after the other. One that is stuck in the source keeps
// the others away, and harms nobody when it goes on.
func TestStuck(t *testing.T) {
	g := begin(t, tree(t, map[string]string{"a": "old"}))
	write(t, g.work, map[string]string{"a": "new", "b": "new"})
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	answer, ended := make(chan struct{}), make(chan struct{})
	at(t, "staged", func() {
		defer close(ended)
		cancel(over)
		<-answer
	})
	_, err := g.job.Run(ctx, bytes.NewReader(archiveOf(t, g.base, g.work)))
	if !errors.Is(err, beneath.ErrStuck) || !errors.Is(err, over) || !errors.Is(err, errLitter) {
		t.Errorf("got %v", err)
	}
	if found, _ := filepath.Glob(g.source + "/.toold-*"); len(found) != 1 {
		t.Errorf("staged: %q", found)
	}
	// Others wait as long as whoever asked.
	if _, err := g.job.Run(ctx, bytes.NewReader(archiveOf(t, g.base, g.work))); !errors.Is(err, over) {
		t.Errorf("beside one that is stuck: %v", err)
	}
	if _, err := Recover(ctx, g.job.Dir); !errors.Is(err, over) {
		t.Errorf("beside one that is stuck: %v", err)
	}
	if err := waitOn(t.Context(), time.Time{}); !errors.Is(err, fault.Overloaded) || !errors.Is(err, ErrHeld) || !strings.HasSuffix(err.Error(), "same files, for more than 30s now (try again when it is over)") {
		t.Errorf("beside one that is stuck for long: %v", err)
	}
	close(answer)
	<-ended
	for { // until its thread has ended
		d, err := openState(t.Context(), g.job.Dir)
		if err == nil {
			d.close()
			break
		}
	}
	r, err := Recover(t.Context(), g.job.Dir)
	if err != nil || r.Source != g.source || r.Applied != nil {
		t.Errorf("got %+v, %v", r, err)
	}
	if diffs := differ(look(t, g.source), look(t, g.base)); diffs != nil {
		t.Error(diffs)
	}
	tidy(t, g.job.Dir)
}

// A staged file that somebody has changed or removed is written once more.
func TestStagedFileTouched(t *testing.T) {
	for name, touch := range map[string]func(string) error{
		"changed": func(p string) error { return os.WriteFile(p, []byte("evil"), 0o644) },
		"removed": os.Remove,
		"a link":  func(p string) error { return errors.Join(os.Remove(p), os.Symlink("/etc/passwd", p)) },
	} {
		t.Run(name, func(t *testing.T) {
			g := begin(t, tree(t, map[string]string{"a": "old"}))
			write(t, g.work, map[string]string{"a": "new", "dir/b": "new"})
			at(t, committedFile+" renamed", func() {
				found, err := filepath.Glob(g.source + "/.toold-*")
				must(t, err)
				if len(found) != 2 {
					t.Errorf("staged: %q", found)
				}
				for _, p := range found {
					must(t, touch(p))
				}
			})
			g.mustApply(client.ApplyRequest{})
			if diffs := differ(look(t, g.source), look(t, g.work)); diffs != nil {
				t.Error(diffs)
			}
		})
	}
}

// What changes after the commit is left alone, and all else is done.
func TestChangedMeanwhile(t *testing.T) {
	g := begin(t, tree(t, map[string]string{"a": "old", "b": "old", "gone": "g", "dir/x": "x", "dir2/x": "x"}))
	write(t, g.work, map[string]string{"a": "new", "b": "new", "c": "new", "new/f": "f"})
	remove(t, g.work, "gone", "dir", "dir2")
	at(t, committedFile+" renamed", func() {
		write(t, g.source, map[string]string{"a": "mine", "c": "mine", "gone": "mine", "dir/mine": "m", "new": "mine"})
	})
	_, err := g.apply(client.ApplyRequest{})
	c, ok := errors.AsType[*ConflictError](err)
	if !ok || c.Applied == nil || c.Count != 6 || !errors.Is(err, fault.Conflict) {
		t.Fatalf("got %v: %+v", err, c)
	}
	if a := c.Applied; a.WrittenCount != 1 || a.RemovedCount != 3 {
		t.Errorf("got %+v", a)
	}
	want := map[string]string{"a": "file 644 mine", "b": "file 644 new", "c": "file 644 mine", "gone": "file 644 mine", "dir": "dir 755", "dir/mine": "file 644 m", "new": "file 644 mine"}
	if diffs := differ(look(t, g.source), want); diffs != nil {
		t.Error(diffs)
	}
	tidy(t, g.job.Dir)
}
