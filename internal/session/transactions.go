package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
	files "github.com/toold/toold/internal/tool/run/root"
	"github.com/toold/toold/internal/worktree"
	"github.com/toold/toold/internal/worktree/layers"
)

// transactions is the part of a session that is the journal of its agent: what is noted
// there of a change of several files is finished or undone when the agent is gone. The
// agent can write it, tools cannot enter. It comes before the sandbox, so that it is closed
// when nothing writes to the worktree any more, and before layers are.
type transactions struct {
	nothing
	roster *roster
}

// Names in the directory of a session. The agent sees the first alone.
const (
	journalName = "journal"
	seatName    = "worktree"
)

// recoverTime bounds the work on one worktree, whose file system may not answer.
const recoverTime = 20 * time.Second

// seat is where the worktree of a session lies on the host.
type seat struct {
	Mode   client.WorktreeMode `json:"mode"`
	Target string              `json:"target"` // inside
	// Source is that of mode bind, with whose rights it is written to.
	Source worktree.Source `json:"source,omitzero"`
	UID    uint32          `json:"uid,omitempty"`
	GID    uint32          `json:"gid,omitempty"`
	// Guarded: git's own files in it are read-only inside.
	Guarded bool `json:"guarded,omitempty"`
}

func (p transactions) dir(session string) string {
	return filepath.Join(p.roster.cfg.JournalDir, session)
}

// open makes the journal, where the worktree outlives the sandbox.
func (p transactions) open(_ context.Context, s *Session, pl *plan) error {
	w := &pl.spec.Worktree
	overlaid := w.Mode == client.WorktreeOverlay && w.Overlay != nil && w.Overlay.Upper != nil
	if p.roster.cfg.JournalDir == "" || w.Source == nil || w.Mode != client.WorktreeBind && !overlaid {
		return nil
	}
	at := seat{Mode: w.Mode, Target: w.Target, Source: pl.sources[0].Source, UID: w.UID, GID: w.GID, Guarded: w.GuardGit}
	text, err := json.Marshal(at)
	if err != nil {
		return err
	}
	dir := p.dir(s.id)
	journal := filepath.Join(dir, journalName)
	if err := errors.Join(os.MkdirAll(journal, 0o700), os.WriteFile(filepath.Join(dir, seatName), text, 0o600)); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	pl.spec.JournalDir = journal
	return nil
}

// close settles what is noted, if nothing of the sandbox is alive. What cannot be settled
// now is left over.
func (p transactions) close(s *Session, _ ending, left error) (notes []string, err error) {
	if left != nil || p.roster.cfg.JournalDir == "" {
		return nil, nil
	}
	done, err := p.settle(s.id)
	if err != nil {
		s.log.Error("finish or undo a change of several files", "error", err)
	}
	return notesOf(done), err
}

// leftovers are journals of sessions that are over.
func (p transactions) leftovers(context.Context) ([]leftover, error) {
	if p.roster.cfg.JournalDir == "" {
		return nil, nil
	}
	return leftIn(p.roster.liveByID, p.roster.cfg.JournalDir, "journal", func(id string) error {
		_, err := p.settle(id)
		return err
	})
}

// settle finishes or undoes what the journal of a session says, and removes it.
func (p transactions) settle(session string) ([]files.Recovered, error) {
	dir := p.dir(session)
	names, err := os.ReadDir(filepath.Join(dir, journalName))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(names) == 0 {
		return nil, os.RemoveAll(dir)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), recoverTime)
	defer cancel()
	type answer struct {
		done []files.Recovered
		err  error
	}
	answered := make(chan answer, 1)
	go func() { // it is left behind where the file system does not answer
		done, err := p.recover(ctx, session, dir)
		answered <- answer{done, err}
	}()
	select {
	case a := <-answered:
		if a.err == nil {
			a.err = os.RemoveAll(dir)
		}
		return a.done, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("the file system of its worktree does not answer: %w", context.Cause(ctx))
	}
}

// recover does the work of settle with the rights of the worktree's owner.
func (p transactions) recover(ctx context.Context, session, dir string) ([]files.Recovered, error) {
	text, err := os.ReadFile(filepath.Join(dir, seatName))
	if err != nil {
		return nil, err
	}
	var at seat
	if err := json.Unmarshal(text, &at); err != nil {
		return nil, err
	}
	tree, release, err := p.openTree(ctx, session, &at)
	if errors.Is(err, layers.ErrNone) {
		return nil, nil // nothing was written
	}
	if err != nil {
		return nil, err
	}
	defer release()
	r, err := files.New(files.Config{Dir: fmt.Sprintf("/proc/self/fd/%d", tree.Fd()), UID: int(at.UID), GID: int(at.GID), Threads: 1})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	o := files.RecoverOptions{Below: at.Target}
	if at.Guarded {
		o.Leave = func(path string) bool { return slices.Contains(strings.Split(path, "/"), ".git") }
	}
	return r.Recover(ctx, filepath.Join(dir, journalName), o)
}

// openTree opens where the session has written, and says with whose rights.
func (p transactions) openTree(ctx context.Context, session string, at *seat) (tree *os.File, release func(), err error) {
	if at.Mode != client.WorktreeOverlay {
		tree, err = at.Source.Open(ctx)
		return tree, func() { _ = tree.Close() }, err
	}
	tree, free, err := p.roster.cfg.Trees.OpenUpper(session)
	if err != nil {
		return nil, nil, err
	}
	release = func() {
		_ = tree.Close() // it was opened for its path alone
		free()
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(tree.Fd()), &st); err != nil {
		release()
		return nil, nil, err
	}
	at.UID, at.GID = st.Uid, st.Gid
	return tree, release, nil
}

// notesOf say what became of changes of several files.
func notesOf(done []files.Recovered) []string {
	var notes []string
	for _, r := range done {
		what := "nothing of it is there"
		if r.Finished {
			what = "all of it is there"
		}
		note := fmt.Sprintf("its agent was killed in a change of %s: %s", plain.Count(len(r.Paths), "file", "files"), what)
		if n := len(r.Left); n > 0 {
			note += fmt.Sprintf(", but for %d that somebody has changed since (%s)", n, plain.Name(plain.Cut(r.Left[0], 256)))
		}
		notes = append(notes, note)
	}
	return notes
}
