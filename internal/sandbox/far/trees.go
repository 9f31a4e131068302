package far

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/state"
	"github.com/toold/toold/internal/sandbox/transfer"
	"github.com/toold/toold/internal/thread"
)

// Trees copies worktrees. Its methods may be called from any goroutine, but by one at a
// time for one sandbox.
type Trees struct {
	changes string // where archives are
	log     *slog.Logger
	// Room is asked before so many bytes are written to changes. Its error is that of Return.
	Room func(bytes int64) error

	mu   sync.Mutex          // guards pins
	pins map[string]*os.File // the worktrees of live sessions; lost by a restart
}

// NewTrees bounds each copy by transfer.DefaultLimits. An archive that comes back lies in
// the directory changes until it is applied, and stays there if some of it cannot be applied.
// The directory is made when it is needed.
func NewTrees(changes string, log *slog.Logger) *Trees {
	return &Trees{changes: changes, log: log, Room: func(int64) error { return nil }, pins: map[string]*os.File{}}
}

// Close closes the pinned worktrees. Their records stay.
func (t *Trees) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, f := range t.pins {
		_ = f.Close()
		delete(t.pins, id)
	}
}

// Forget closes the pinned worktree of one sandbox.
func (t *Trees) Forget(at state.Dir) {
	if f := t.unpin(at); f != nil {
		_ = f.Close()
	}
}

func (t *Trees) unpin(at state.Dir) *os.File {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.pins[at.ID()]
	delete(t.pins, at.ID())
	return f
}

// copied records a worktree that was copied: where it is, and whose ids may change it. As
// in package state, the names of its fields never change.
type copied struct {
	Path     string // as it was called when it was copied
	Dev, Ino uint64 // what must be there
	Owner    thread.User
	Target   string
	Back     bool // changes are to be copied back
}

const (
	copiedName   = "worktree.json"
	manifestName = "manifest"
)

// Send packs a worktree; put copies the archive to the sandbox while it is packed. It
// records what Return needs, and counts the entries that were left out. An empty worktree
// is not sent.
func (t *Trees) Send(ctx context.Context, at state.Dir, w *sandbox.Worktree, put func(archive io.Reader) error) (skipped int, err error) {
	if w.Mode == client.WorktreeEmpty {
		return 0, nil
	}
	m, err := t.pack(ctx, w, put)
	if err != nil {
		return 0, fmt.Errorf("worktree: %w", err)
	}
	return m.Skipped, t.remember(at, w, m)
}

func ownerOf(w *sandbox.Worktree) thread.User { return thread.User{UID: w.UID, GID: w.GID} }

func (t *Trees) pack(ctx context.Context, w *sandbox.Worktree, put func(io.Reader) error) (*transfer.Manifest, error) {
	into := transfer.Into{UID: sandbox.ToolUID, GID: sandbox.ToolGID}
	if w.Mode == client.WorktreeRO {
		into = transfer.Into{ReadOnly: true}
	}
	pr, pw := io.Pipe()
	var m *transfer.Manifest
	packed := make(chan error, 1)
	go func() {
		var err error
		m, err = transfer.Pack(ctx, pw, w.Source, ownerOf(w), into, transfer.DefaultLimits)
		_ = pw.CloseWithError(err) // always nil
		packed <- err
	}()
	err := put(pr)
	_ = pr.CloseWithError(errors.New("the other side has stopped reading"))
	if packErr := <-packed; err == nil || errors.Is(packErr, transfer.ErrTooLarge) {
		err = packErr
	}
	return m, err
}

// remember keeps what is needed to copy back, by whichever daemon that will be.
func (t *Trees) remember(at state.Dir, w *sandbox.Worktree, m *transfer.Manifest) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(w.Source.Fd()), &st); err != nil {
		return err
	}
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", w.Source.Fd()))
	if err != nil {
		return err
	}
	if err := at.Keep(manifestName, m.Write); err != nil {
		return err
	}
	is := copied{Path: name, Dev: uint64(st.Dev), Ino: st.Ino, Owner: ownerOf(w), Target: w.Target, Back: w.Mode != client.WorktreeRO}
	if err := at.Keep(copiedName, func(w io.Writer) error { return json.NewEncoder(w).Encode(is) }); err != nil {
		return err
	}
	fd, err := unix.FcntlInt(w.Source.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pins[at.ID()] = os.NewFile(uintptr(fd), name)
	return nil
}
