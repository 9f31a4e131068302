// Package layers keeps what sessions have changed in worktrees of mode overlay: the
// upper layers of their overlays, in the order in which they lie, and the checkpoints to
// which a session can come back. It makes no mounts.
//
// All of it is in one directory, of which nobody but the daemon may open anything:
//
//	trees/SESSION.json     one Tree
//	layers/ID/root, work   what one overlay took; the driver makes the two
//	disks/ID               a file system that has layers, see NewDisk
//	apply/SESSION          for package apply
//	void                   an empty directory
//
// An upper layer is mounted once. Whoever wants to go on from it freezes it: it becomes
// the uppermost of the lower ones, which nothing writes to, and which many trees may have.
// A layer goes with the last tree that names it. Every change of a tree is one rename of
// its file: it is there as a whole or not at all, whatever is killed when.
package layers

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/crew"
	"github.com/toold/toold/internal/sandbox/loopdisk"
	"github.com/toold/toold/internal/sandbox/state"
	"github.com/toold/toold/internal/worktree"
)

// MaxLayers is how many lower layers a tree may have: the kernel is given their names in
// 255 bytes, and each makes every lookup longer.
const MaxLayers = 64

// Errors that callers tell apart.
var (
	// ErrNone: there is no such tree or checkpoint.
	ErrNone = errors.New("there is none")
	// ErrUnwritten: the file of a tree cannot be written. The tree is on record as it was.
	ErrUnwritten = errors.New("what becomes of the session's layers cannot be written down")
	// ErrTaken: a checkpoint of that name exists.
	ErrTaken = errors.New("there is a checkpoint of that name")
	// ErrOther: the tree has other layers by now.
	ErrOther = errors.New("its layers are others by now")
	// ErrDeep: the tree has MaxLayers lower layers.
	ErrDeep = fmt.Errorf("there are %d layers", MaxLayers)
)

// Store is the trees of one daemon. Its methods may be called from any goroutine. Where the disk of
// one session does not answer, no other session waits for it.
type Store struct {
	dir   string
	turns crew.Turns // by session: who works on its tree, which may wait for its disk
	shelf shelf
	disks disks

	mu     sync.Mutex          // guards the fields below, and is held over no file
	held   map[string]int      // layers that stay though no tree may name them
	sweeps map[*sweep]struct{} // which are told what is held from now on
	live   map[string]string   // disks that are held for live trees, by session
	loose  map[string]struct{} // disks with layers that may be nobody's

	boundedMu sync.Mutex // guards bounded
	bounded   bool       // disks can be made here

	sizesMu sync.Mutex       // guards sizes
	sizes   map[string]int64 // of layers that nothing writes to
}

// Tree is the layers of one session's worktree.
type Tree struct {
	Session string          `json:"session"`
	Source  worktree.Source `json:"source"`
	// UID and GID are whose rights the tools have on the source.
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
	// Since is when it began, in ns: a file of the source with a later change time was
	// changed beside the session. Begin sets what is 0.
	Since int64 `json:"since"`
	// Clock is by how much the wall clock was ahead of Boot's monotonic one then, in ns, and
	// Boot the boot of the host; "" in a tree of an older daemon. Begin and Applied set them.
	Clock int64  `json:"clock,omitempty"`
	Boot  string `json:"boot,omitempty"`
	// Upper takes the changes, "" in a tree that is over and had none. Lower are what lies
	// below it, the uppermost first. All are names of layers.
	Upper string   `json:"upper,omitempty"`
	Lower []string `json:"lower,omitempty"`
	// Disk is what upper layers are made on, "" for the state directory itself.
	Disk string `json:"disk,omitempty"`
	// Unlaid: it is not known whether the sandbox already has these layers. Nothing ran in
	// it since they were decided on, so that Upper is empty.
	Unlaid      bool         `json:"unlaid,omitempty"`
	Checkpoints []Checkpoint `json:"checkpoints,omitempty"`
	// Merged are layers that follow each other in Lower, MergedInto a layer that is the same
	// as all of them; it takes their place when the sandbox is next given other layers.
	Merged     []string `json:"merged,omitempty"`
	MergedInto string   `json:"merged_into,omitempty"`
	// Incomplete are moved directories that the source did not have as a whole when the layers were
	// made one: what is missing in them shows no more. A list is not changed, but replaced.
	Incomplete []Incomplete `json:"incomplete,omitempty"`
	// Origins say what moved directories were in the source when they were first seen, by their
	// paths there, since the layers may not. They are those of all checkpoints, too. A map is not
	// changed, but replaced.
	Origins map[string]string `json:"origins,omitempty"`
	// Moved are the directories that were moved before the layers were made one, which do not say it any
	// more: their paths by those in the source, at most MaxOrigins. A map is not changed, but replaced.
	Moved map[string]string `json:"moved,omitempty"`
	// Wrote is when the session's own changes were last written to the source, in ns.
	Wrote int64 `json:"wrote,omitempty"`
	// Ended is when its session ended; zero while it lives.
	Ended time.Time `json:"ended,omitzero"`
}

// Checkpoint is a state of a tree: the layers that it was of, the uppermost first.
type Checkpoint struct {
	ID      string    `json:"id"`
	Name    string    `json:"name,omitempty"`
	Created time.Time `json:"created"`
	Cause   string    `json:"cause"`
	Call    string    `json:"call,omitempty"`
	Message string    `json:"message,omitempty"`
	// Tasks is the call that had written the session's list of tasks.
	Tasks string `json:"tasks,omitempty"`
	// Undone: the session went back to it, or to one before it.
	Undone bool `json:"undone,omitempty"`
	// Stale: it is from before changes were applied to the source.
	Stale  bool     `json:"stale,omitempty"`
	Layers []string `json:"layers,omitempty"`
	// Incomplete is what Tree.Incomplete was then: it belongs to the layers.
	Incomplete []Incomplete `json:"-"` // see checkpointFile
}

// Own is the layer that was frozen for the checkpoint, "" where it is that of one before.
func (c *Checkpoint) Own(t *Tree) string {
	if len(c.Layers) == 0 {
		return ""
	}
	for i := range t.Checkpoints {
		o := &t.Checkpoints[i]
		if o.ID == c.ID {
			break
		}
		if len(o.Layers) > 0 && o.Layers[0] == c.Layers[0] {
			return ""
		}
	}
	return c.Layers[0]
}

// Open opens a store, and makes its directory where there is none.
func Open(dir string) (*Store, error) {
	s := &Store{
		dir: dir, sizes: map[string]int64{}, held: map[string]int{}, sweeps: map[*sweep]struct{}{}, live: map[string]string{}, loose: map[string]struct{}{},
		disks: disks{dir: filepath.Join(dir, "disks"), mount: loopdisk.Mount, open: map[string]*openDisk{}},
	}
	for _, d := range []string{dir, s.trees(), s.layers(), s.disks.dir, filepath.Join(dir, "apply")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("layers of worktrees: %w", err)
		}
	}
	// What a store that was killed was writing. It does no harm where it cannot be removed.
	_ = beneath.RemoveMatching(filepath.Join(s.trees(), writing+"*"), "")
	return s, nil
}

// Dir is the directory of the store.
func (s *Store) Dir() string { return s.dir }

// ApplyDir is a private directory for applies of a session's changes to its source. It may
// not be there.
func (s *Store) ApplyDir(session string) string { return filepath.Join(s.dir, "apply", session) }

// ApplyDirs are the directories of that kind which are there, by session.
func (s *Store) ApplyDirs() (map[string]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, "apply"))
	dirs := make(map[string]string, len(entries))
	for _, e := range entries {
		dirs[e.Name()] = s.ApplyDir(e.Name())
	}
	return dirs, err
}

// Void opens an empty directory, for layers to lie over. The caller closes it.
func (s *Store) Void() (*os.File, error) {
	dir := filepath.Join(s.dir, "void")
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

func (s *Store) trees() string  { return filepath.Join(s.dir, "trees") }
func (s *Store) layers() string { return filepath.Join(s.dir, "layers") }

// treeSuffix ends the names of trees; writing begins those of files that are not yet trees.
const (
	treeSuffix = ".json"
	writing    = ".new-"
)

func (s *Store) file(session string) string { return filepath.Join(s.trees(), session+treeSuffix) }

// Begin stores the tree of a session that begins, with an empty upper layer.
func (s *Store) Begin(t *Tree) error {
	defer s.turn(t.Session)()
	if t.Since == 0 {
		t.begin(Now())
	}
	if err := s.renew(t); err != nil {
		return fmt.Errorf("layers of session %s: %w", t.Session, err)
	}
	return nil
}

// Put stores a tree as it was before a change that could not be carried out. If its session has ended
// meanwhile, it is over all the same.
func (s *Store) Put(t *Tree) error {
	defer s.turn(t.Session)()
	if now, err := s.Get(t.Session); err == nil && !now.Ended.IsZero() {
		over := *t
		over.Ended, over.Unlaid = now.Ended, false
		t = &over
	}
	return s.write(t)
}

// turn waits until nobody else works on the tree of a session.
func (s *Store) turn(session string) (done func()) {
	done, _ = s.turns.Take(context.Background(), session) // which never ends
	return done
}

// begin says when the tree begins, and by which clock.
func (t *Tree) begin(now int64) {
	t.Since, t.Clock, t.Boot = now, clock(unix.CLOCK_REALTIME)-clock(unix.CLOCK_BOOTTIME), boot()
}

// SetBack is by how much the wall clock was set back since the tree began, in ns: files that
// were changed later may have change times that are so much smaller. After a boot only a
// clock that is behind the beginning shows it. Less than a second is how clocks are steered.
func (t *Tree) SetBack() int64 {
	back := t.Since - Now()
	if t.Boot != "" && t.Boot == boot() {
		back = t.Clock - (clock(unix.CLOCK_REALTIME) - clock(unix.CLOCK_BOOTTIME))
	}
	if back < int64(time.Second) {
		return 0
	}
	return back
}

// boot names the host's boot.
var boot = sync.OnceValue(state.BootID)

// Now is a time, in ns, that no file has as its change time yet. Those that are changed
// next may have an earlier one, by a tick of the clock that file systems take them from.
func Now() int64 { return clock(unix.CLOCK_REALTIME) }

// After waits until that clock is past a time: files that are changed next have a later one.
func After(ns int64) {
	for clock(unix.CLOCK_REALTIME_COARSE) <= ns {
		time.Sleep(time.Millisecond)
	}
}

func clock(id int32) int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(id, &now) // it can always be read
	return now.Nano()
}

// renew gives the tree an empty upper layer and stores it.
func (s *Store) renew(t *Tree) error {
	t.Upper = layerPrefix + strings.ToLower(rand.Text()[:20])
	if t.Disk != "" {
		t.Upper = t.Disk + "." + t.Upper
	}
	defer s.Hold([]string{t.Upper})() // before it is there: no tree names it yet
	dir, release, err := s.at(t.Upper)
	if err != nil {
		return err
	}
	defer release()
	if err := s.spend(t.Disk); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := s.write(t); err != nil {
		return errors.Join(err, os.Remove(dir))
	}
	return nil
}

// write stores a tree.
func (s *Store) write(t *Tree) error {
	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	defer s.Hold(t.All(), []string{t.Disk + "."})() // a Sweep may have read its file already
	tmp, err := os.CreateTemp(s.trees(), writing+"*")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnwritten, err)
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), s.file(t.Session))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%w: %w", ErrUnwritten, err), os.Remove(tmp.Name()))
	}
	s.shelf.forget(s.file(t.Session))
	s.loosen(t)
	s.keep(t)
	return nil
}

// loosen has the next Sweep look at the disks of a tree that loses layers.
func (s *Store) loosen(t *Tree) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range t.Places() {
		if strings.HasPrefix(p, diskPrefix) {
			s.loose[p] = struct{}{}
		}
	}
}

// Get reads a session's tree. ErrNone: it has none.
func (s *Store) Get(session string) (*Tree, error) {
	if session == "" || filepath.Base(session) != session {
		return nil, ErrNone
	}
	t, err := s.shelf.read(s.file(session))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("layers of session %s: %w", session, ErrNone)
	}
	if err != nil {
		return nil, err
	}
	if t.Session != session {
		return nil, fmt.Errorf("%s: it is the tree of session %q", s.file(session), t.Session)
	}
	return t, nil
}

// locked reads a tree and has f work on it, which gives its error.
func (s *Store) locked(session string, f func(*Tree) error) (*Tree, error) {
	defer s.turn(session)()
	t, err := s.Get(session)
	if err == nil {
		err = f(t)
	}
	return t, err
}

// change reads a tree, has f change it, and stores it.
func (s *Store) change(session string, f func(*Tree) error) (*Tree, error) {
	return s.locked(session, func(t *Tree) error {
		s.loosen(t)
		if err := f(t); err != nil {
			return err
		}
		return s.write(t)
	})
}

// Drop removes checkpoints, by their names or ids: all of them, or with an error none.
func (s *Store) Drop(session string, checkpoints ...string) (*Tree, error) {
	return s.change(session, func(t *Tree) error {
		for _, c := range checkpoints {
			i := t.index(c)
			if i < 0 {
				return fmt.Errorf("checkpoint %q: %w", c, ErrNone)
			}
			t.Checkpoints = slices.Delete(t.Checkpoints, i, i+1)
		}
		return nil
	})
}

// Checkpoint finds one by its name or id.
func (t *Tree) Checkpoint(nameOrID string) (*Checkpoint, error) {
	i := t.index(nameOrID)
	if i < 0 {
		return nil, fmt.Errorf("checkpoint %q: %w", nameOrID, ErrNone)
	}
	return &t.Checkpoints[i], nil
}

func (t *Tree) index(nameOrID string) int {
	return slices.IndexFunc(t.Checkpoints, func(c Checkpoint) bool {
		return nameOrID != "" && (c.ID == nameOrID || c.Name == nameOrID)
	})
}

// End says that the session is over. A tree that has no layers then, nor a checkpoint with
// some, is removed.
func (s *Store) End(session string, when time.Time) error {
	_, err := s.locked(session, func(t *Tree) error {
		upper := t.Upper
		if upper != "" && s.empty(upper) {
			t.Upper = ""
		}
		if len(t.All()) == 0 {
			return s.forget(t, upper)
		}
		t.Ended, t.Unlaid = when, false
		return s.write(t)
	})
	return err
}

// empty reports whether a layer has nothing in it.
func (s *Store) empty(layer string) bool {
	path, release, err := s.at(layer)
	if err != nil {
		return false // nobody can say that it is
	}
	defer release()
	d, err := os.Open(filepath.Join(path, "root"))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) // it was never mounted
	}
	defer d.Close()
	names, _ := d.Readdirnames(1)
	return len(names) == 0
}

// Present are the layers that a checkpoint would have now: an upper one counts when
// something is in it.
func (s *Store) Present(t *Tree) []string {
	if t.Upper == "" || s.empty(t.Upper) {
		return t.Lower
	}
	return t.Layers()
}

// Layers are all layers of the tree, the uppermost first: what a session that is over
// would see.
func (t *Tree) Layers() []string {
	if t.Upper == "" {
		return t.Lower
	}
	return slices.Insert(slices.Clone(t.Lower), 0, t.Upper)
}

// Remove removes a session's tree. Its layers go with the next Sweep.
func (s *Store) Remove(session string) error {
	defer s.turn(session)()
	if t, err := s.Get(session); err == nil {
		s.loosen(t)
	}
	err := os.Remove(s.file(session))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("layers of session %s: %w", session, ErrNone)
	}
	s.keep(&Tree{Session: session})
	return err
}

// UnreadableError is a tree whose file is there and cannot be read. Nobody knows which
// layers it names, so that none can be removed while it is there.
type UnreadableError struct {
	Session string // by the name of the file
	Err     error  // names the file
}

// Error implements error.
func (e *UnreadableError) Error() string {
	return "the changes of session " + e.Session + ": " + e.Err.Error()
}

// Unwrap gives the cause.
func (e *UnreadableError) Unwrap() error { return e.Err }

// All reads all trees, and names those that cannot be read beside the others.
func (s *Store) All() (trees []*Tree, unreadable []*UnreadableError, err error) {
	entries, err := os.ReadDir(s.trees())
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		session, ok := strings.CutSuffix(e.Name(), treeSuffix)
		if !ok {
			continue
		}
		t, err := s.Get(session)
		if errors.Is(err, ErrNone) {
			continue // it has just gone
		} else if err != nil {
			unreadable = append(unreadable, &UnreadableError{session, err})
			continue
		}
		trees = append(trees, t)
	}
	return trees, unreadable, nil
}
