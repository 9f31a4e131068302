package trees

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/call/errand"
	"github.com/toold/toold/internal/crew"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/worktree"
	"github.com/toold/toold/internal/worktree/layers"
)

// one is a live session, and all that there are.
type one struct {
	Sessions
	store  *layers.Store
	none   error   // why it takes none
	relays []error // what the next ones give, then nil
	relaid int
	told   []string
	lost   string // why
}

func (o *one) Still(context.Context) (func(), error) { return func() {}, nil }
func (o *one) Errand() (errand.Errand, error)        { return errand.Errand{}, errors.New("no agent") }
func (o *one) Lose(why string)                       { o.lost = why }

func (o *one) Relays() error { return o.none }

// Relay sweeps, as others do at any time.
func (o *one) Relay(context.Context, *layers.Tree, *sandbox.Overlay) (err error) {
	o.relaid++
	if len(o.relays) > 0 {
		err, o.relays = o.relays[0], o.relays[1:]
	}
	return errors.Join(err, o.store.Sweep())
}

func (o *one) Find(context.Context, auth.Principal, string) (*store.Session, Live, error) {
	row := &store.Session{}
	row.ID, row.Worktree.Mode = "ses_1", client.WorktreeOverlay
	return row, o, nil
}

func (o *one) Tasks() string                              { return "" }
func (o *one) RestoreTasks(context.Context, string) error { return nil }

func (o *one) Audit(auth.Principal, *store.Session, record.Worktree) error { return nil }
func (o *one) Publish(*store.Session, string, any)                         {}
func (o *one) Internal(_ string, err error) error                          { return err }
func (o *one) Operated(operation, outcome string, _ time.Duration) {
	o.told = append(o.told, operation+" "+outcome)
}

// change writes into the upper layer of the session, as its sandbox would.
func (o *one) change(t *testing.T) *layers.Tree {
	t.Helper()
	tree, err := o.store.Get("ses_1")
	if err == nil {
		root := filepath.Join(o.store.Dir(), "layers", tree.Upper, "root")
		err = errors.Join(os.MkdirAll(root, 0o755), os.WriteFile(filepath.Join(root, "file"), nil, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func newOne(t *testing.T) (*Service, *one) {
	t.Helper()
	st, err := layers.Open(t.TempDir())
	if err == nil {
		err = st.Begin(&layers.Tree{Session: "ses_1"})
	}
	if err != nil {
		t.Fatal(err)
	}
	o := &one{store: st}
	o.change(t)
	work := new(crew.Crew)
	if err := work.Close(t.Context()); err != nil { // nothing is done in the background
		t.Fatal(err)
	}
	return New(st, o, slog.New(slog.DiscardHandler), work), o
}

// TestBusyGoesBack: where a worktree stays in use, its tree is what it was, with all of its
// layers, although others sweep meanwhile.
func TestBusyGoesBack(t *testing.T) {
	s, o := newOne(t)
	if _, err := s.Checkpoint(t.Context(), auth.Principal{Admin: true}, "ses_1", client.CheckpointCreate{}); err != nil {
		t.Fatal(err)
	}
	before := o.change(t)
	for range relayTries {
		o.relays = append(o.relays, sandbox.ErrBusy)
	}
	x, err := s.take(t.Context(), auth.Principal{Admin: true}, "ses_1")
	if err != nil {
		t.Fatal(err)
	}
	if err := x.discardAll(t.Context()); !errors.Is(err, fault.Conflict) {
		t.Errorf("discard of a worktree in use: %v", err)
	}
	x.release()
	after, err := o.store.Get("ses_1")
	if err != nil || !reflect.DeepEqual(after, before) {
		t.Errorf("the tree is %+v, %v; want %+v", after, err, before)
	}
	for _, l := range before.All() {
		if _, err := os.Stat(filepath.Join(o.store.Dir(), "layers", l, "root", "file")); err != nil {
			t.Error(err)
		}
	}
	if x, err = s.take(t.Context(), auth.Principal{Admin: true}, "ses_1"); err != nil {
		t.Fatal(err)
	}
	if err := x.discardAll(t.Context()); err != nil {
		t.Error(err)
	}
	x.release()
	if _, err := os.Stat(filepath.Join(o.store.Dir(), "layers", before.Upper)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was discarded stayed: %v", err)
	}
}

// TestStaleCheckpoints: no checkpoint from before an apply comes back, and each can go.
func TestStaleCheckpoints(t *testing.T) {
	s, o := newOne(t)
	p := auth.Principal{Admin: true}
	if _, err := s.Checkpoint(t.Context(), p, "ses_1", client.CheckpointCreate{Name: "old"}); err != nil {
		t.Fatal(err)
	}
	if _, err := o.store.Outdate("ses_1"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Restore(t.Context(), p, "ses_1", client.RestoreRequest{Checkpoint: "old"}); !errors.Is(err, fault.Conflict) {
		t.Errorf("restore: %v", err)
	}
	if err := s.DropCheckpoint(t.Context(), p, "ses_1", "old"); err != nil {
		t.Errorf("remove: %v", err)
	}
	if list, err := s.Checkpoints(t.Context(), p, "ses_1"); err != nil || len(list.Items) != 0 {
		t.Errorf("there are %+v, %v", list.Items, err)
	}
	if want := []string{"checkpoint ok", "restore conflict"}; !reflect.DeepEqual(o.told, want) {
		t.Errorf("operations are %q, want %q", o.told, want)
	}
}

// TestNeverRelaid: where a sandbox takes no other worktree, that is known before anything of one
// is stored, whatever asks for it.
func TestNeverRelaid(t *testing.T) {
	s, o := newOne(t)
	p := auth.Principal{Admin: true}
	if _, err := s.Checkpoint(t.Context(), p, "ses_1", client.CheckpointCreate{Name: "old"}); err != nil {
		t.Fatal(err)
	}
	o.change(t)
	before, err := o.store.Get("ses_1")
	if err != nil {
		t.Fatal(err)
	}
	asked := o.relaid
	o.none = sandbox.ErrUnsupported
	alone := func(do func(x *subject) error) error {
		x, err := s.take(t.Context(), p, "ses_1")
		if err != nil {
			t.Fatal(err)
		}
		defer x.release()
		return do(x)
	}
	for name, do := range map[string]func() error{
		"checkpoint": func() error {
			_, err := s.Checkpoint(t.Context(), p, "ses_1", client.CheckpointCreate{})
			return err
		},
		"restore": func() error {
			_, err := s.Restore(t.Context(), p, "ses_1", client.RestoreRequest{Checkpoint: "old"})
			return err
		},
		"fork": func() error {
			_, err := s.Fork(t.Context(), p, "ses_1", client.ForkRequest{})
			return err
		},
		"compare with a checkpoint": func() error {
			_, err := s.Changes(t.Context(), p, "ses_1", client.DiffQuery{Against: "old"})
			return err
		},
		"discard": func() error { return alone(func(x *subject) error { return x.discardAll(t.Context()) }) },
		"apply": func() error {
			return alone(func(x *subject) error { return x.settle(t.Context(), p, &moves{all: make([]layers.Moved, 1)}) })
		},
	} {
		if err := do(); !errors.Is(err, fault.Conflict) {
			t.Errorf("%s: %v", name, err)
		}
		if after, err := o.store.Get("ses_1"); err != nil || !reflect.DeepEqual(after, before) || o.relaid != asked {
			t.Errorf("%s: the tree is %+v, %v; want %+v; asked %d times", name, after, err, before, o.relaid-asked)
		}
	}
	row, live, _ := o.Find(t.Context(), auth.Principal{}, "")
	told := len(o.told)
	for _, message := range []string{"", "msg_1", "msg_2"} {
		if made := s.Before(t.Context(), row, live, EachPrompt, "call_1", message); made != (Made{}) || len(o.told) != told {
			t.Errorf("before %q: checkpoint %+v, %q", message, made, o.told[told:])
		}
	}
	o.none = nil
	for i, want := range []bool{true, false} {
		if made := s.Before(t.Context(), row, live, EachPrompt, "call_2", "msg_3"); (made.ID != "") != want || made.Missing != "" {
			t.Errorf("call %d of a message: checkpoint %+v", i, made)
		}
	}
}

// TestPlannedAlone: a checkpoint that an earlier version has stored for a sandbox that takes none
// is taken back when the session is taken over: its layers are those that are mounted there.
func TestPlannedAlone(t *testing.T) {
	s, o := newOne(t)
	before, err := o.store.Get("ses_1")
	if err == nil {
		_, err = o.store.Freeze("ses_1", layers.Checkpoint{Cause: causeCall})
	}
	if err != nil {
		t.Fatal(err)
	}
	o.none = sandbox.ErrUnsupported
	row, live, _ := o.Find(t.Context(), auth.Principal{}, "")
	if err := s.Recover(t.Context(), row, live); err != nil {
		t.Error(err)
	}
	if after, err := o.store.Get("ses_1"); err != nil || !reflect.DeepEqual(after, before) || o.relaid != 0 {
		t.Errorf("the tree is %+v, %v; want %+v", after, err, before)
	}
}

// TestWeldBounded: a merge of layers that calls wait for takes no longer than it may, and is not tried
// again at the next checkpoint where it cannot be had. A sweep removes what it leaves behind.
func TestWeldBounded(t *testing.T) {
	needs.OpenAt2(t)
	s, o := newOne(t)
	tried := 0
	s.Step = func(step string) {
		if step == "welding" {
			tried++
		}
	}
	s.weldTime = 0
	p := auth.Principal{Admin: true}
	for range mergeAt + weldAgain {
		o.change(t)
		if _, err := s.Checkpoint(t.Context(), p, "ses_1", client.CheckpointCreate{}); err != nil {
			t.Fatal(err)
		}
	}
	if tree, err := o.store.Get("ses_1"); err != nil || tree.MergedInto != "" || tried != 1 {
		t.Errorf("there was no time, and calls stood still for it %d times: %+v, %v", tried, tree, err)
	}
	x, err := s.take(t.Context(), p, "ses_1")
	if err == nil {
		err = o.store.Sweep()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer x.release()
	if left, err := o.store.Unused(); err != nil || len(left) > 0 {
		t.Errorf("it left %q, %v", left, err)
	}
	s.weldTime = time.Minute
	if weldSome(t.Context(), x) {
		t.Error("layers that cannot be merged in time were merged")
	}
	s.Over("ses_1")
	if !weldSome(t.Context(), x) || tried != 2 {
		t.Errorf("there was time, and it was not done; tried %d times", tried)
	}
}

// TestMergedAlready: while layers are merged in the background no call waits for another merge.
func TestMergedAlready(t *testing.T) {
	needs.OpenAt2(t)
	s, o := newOne(t)
	s.Step = func(step string) {
		if step == "welding" {
			t.Error("calls stood still")
		}
	}
	release, _ := s.merging.try("ses_1")
	defer release()
	for range mergeAt + 1 {
		o.change(t)
		if _, err := s.Checkpoint(t.Context(), auth.Principal{Admin: true}, "ses_1", client.CheckpointCreate{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDiskFailed: where the disk of a session fails, its sandbox goes on with the worktree that it
// has, also over a restart, and the tree is what it was.
func TestDiskFailed(t *testing.T) {
	for _, failed := range []error{unix.EROFS, unix.EIO} {
		s, o := newOne(t)
		before := o.change(t)
		o.relays = []error{fmt.Errorf("upper layer: %w", failed)}
		if _, err := s.Checkpoint(t.Context(), auth.Principal{Admin: true}, "ses_1", client.CheckpointCreate{}); !errors.Is(err, fault.Sandbox) {
			t.Errorf("got %v", err)
		}
		if after, err := o.store.Get("ses_1"); err != nil || !reflect.DeepEqual(after, before) {
			t.Errorf("it was %+v and is %+v, %v", before, after, err)
		}
		if _, err := o.store.Freeze("ses_1", layers.Checkpoint{}); err != nil { // and the daemon dies
			t.Fatal(err)
		}
		o.relays = []error{fmt.Errorf("upper layer: %w", failed)}
		row := &store.Session{}
		row.ID = "ses_1"
		if err := s.Recover(t.Context(), row, o); !errors.Is(err, fault.Sandbox) || !unlaid(err) {
			t.Errorf("after a restart: %v", err)
		}
	}
}

func unlaid(err error) bool {
	_, ok := errors.AsType[*UnlaidError](err)
	return ok
}

// TestHindered: what keeps a worktree from being laid loses no session, as long as its sandbox has the one
// that it had, neither while its daemon lives nor when the next one begins; and it is laid once it can be.
func TestHindered(t *testing.T) {
	for _, tt := range []struct {
		err  error
		kind fault.Kind // of what is said; "" where the session is lost
	}{
		{fmt.Errorf("%w: gone", ErrSource), fault.Conflict},
		{fmt.Errorf("%w: %w", ErrSource, unix.EIO), fault.Conflict},
		{fmt.Errorf("%w: %w", ErrSource, beneath.ErrStuck), fault.Overloaded},
		{sandbox.ErrBusy, fault.Conflict},
		{sandbox.ErrMountTarget, fault.Conflict},
		{unix.ENOSPC, fault.Quota},
		{unix.EROFS, fault.Sandbox},
		{errors.New("the Engine does not answer"), fault.Overloaded},
		{unix.EINVAL, fault.Overloaded},
		{fmt.Errorf("%w: %w", sandbox.ErrTorn, unix.EINVAL), ""},
	} {
		s, o := newOne(t)
		before := o.change(t)
		fail := func() { o.relays = slices.Repeat([]error{tt.err}, relayTries) }
		fail()
		_, err := s.Checkpoint(t.Context(), auth.Principal{Admin: true}, "ses_1", client.CheckpointCreate{})
		if (o.lost != "") != (tt.kind == "") || o.lost == "" && !errors.Is(err, tt.kind) {
			t.Errorf("%v: lost for %q, %v", tt.err, o.lost, err)
		}
		if o.lost == "" {
			if after, err := o.store.Get("ses_1"); err != nil || !reflect.DeepEqual(after, before) {
				t.Errorf("%v: the tree is %+v, %v; want %+v", tt.err, after, err, before)
			}
		}
		o.lost, o.relays = "", nil
		if _, err := o.store.Freeze("ses_1", layers.Checkpoint{}); err != nil && o.lost == "" { // and the daemon dies
			t.Fatal(err)
		}
		row := &store.Session{}
		row.ID = "ses_1"
		fail()
		if err := s.Recover(t.Context(), row, o); unlaid(err) != (tt.kind != "") || unlaid(err) && !errors.Is(err, tt.kind) {
			t.Errorf("%v: after a restart %v", tt.err, err)
		}
		fail()
		if err := s.Again(t.Context(), row, o); unlaid(err) != (tt.kind != "") || (o.lost != "") != (tt.kind == "") {
			t.Errorf("%v: once more %v, lost for %q", tt.err, err, o.lost)
		}
		if o.relays = nil; o.lost != "" {
			continue
		}
		if err := s.Again(t.Context(), row, o); err != nil {
			t.Errorf("%v, and then nothing: %v", tt.err, err)
		}
		if after, err := o.store.Get("ses_1"); err != nil || after.Unlaid || len(after.Lower) != 1 || after.Lower[0] != before.Upper {
			t.Errorf("%v, and then nothing: the tree is %+v, %v", tt.err, after, err)
		}
	}
}

// TestLaidAndNotSaid: a tree that a sandbox has, and that could not be recorded, is recorded as soon
// as it can be, and what was written to it meanwhile stays over a restart.
func TestLaidAndNotSaid(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting takes root")
	}
	s, o := newOne(t)
	trees := filepath.Join(o.store.Dir(), "trees")
	s.Step = func(name string) {
		if name != "laid" {
			return
		}
		// The same files on a disk that is full.
		record, err := os.ReadFile(filepath.Join(trees, "ses_1.json"))
		if err == nil {
			err = unix.Mount("none", trees, "tmpfs", 0, "size=8k")
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(trees, "ses_1.json"), record, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = os.WriteFile(filepath.Join(trees, "full"), make([]byte, 1<<16), 0o600)
	}
	t.Cleanup(func() { _ = unix.Unmount(trees, unix.MNT_DETACH) })
	p := auth.Principal{Admin: true}
	for range 2 { // nor can anything be done while it cannot be recorded
		if _, err := s.Checkpoint(t.Context(), p, "ses_1", client.CheckpointCreate{}); !errors.Is(err, fault.Overloaded) {
			t.Fatalf("got %v", err)
		}
	}
	laid := o.change(t)
	again := New(o.store, o, slog.New(slog.DiscardHandler), new(crew.Crew)) // a daemon after this one
	if err := os.Remove(filepath.Join(trees, "full")); err != nil {
		t.Fatal(err)
	}
	row := &store.Session{}
	row.ID = "ses_1"
	if err := again.Recover(t.Context(), row, o); err != nil {
		t.Fatal(err)
	}
	if after, err := o.store.Get("ses_1"); err != nil || after.Upper != laid.Upper || after.Unlaid {
		t.Errorf("after a restart it is %+v, %v; want the layer %s", after, err, laid.Upper)
	}
	if x, err := s.take(t.Context(), p, "ses_1"); err != nil || x.tree.Unlaid || x.tree.Upper != laid.Upper {
		t.Errorf("without one: %+v, %v", x, err)
	}
	if o.relaid != 1 {
		t.Errorf("it was laid %d times", o.relaid)
	}
}

// TestOthers: what an apply replaces is kept for sessions of the same user alone, since another one
// may not have been able to read it.
func TestOthers(t *testing.T) {
	s, o := newOne(t)
	source := worktree.Source{Path: "/src", Inode: 1}
	mine := &layers.Tree{Session: "ses_mine", Source: source, UID: 1, GID: 2}
	for _, other := range []*layers.Tree{
		mine,
		{Session: "ses_same", Source: source, UID: 1, GID: 2},
		{Session: "ses_uid", Source: source, UID: 3, GID: 2},
		{Session: "ses_gid", Source: source, UID: 1, GID: 3},
		{Session: "ses_source", Source: worktree.Source{Path: "/b", Inode: 2}, UID: 1, GID: 2},
	} {
		if err := o.store.Begin(other); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.others(mine); len(got) != 1 || got[0].Dir != o.store.ApplyDir("ses_same") {
		t.Errorf("got %+v", got)
	}
}
