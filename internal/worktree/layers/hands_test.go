package layers

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/sandbox/loopdisk"
	"github.com/toold/toold/internal/testrig"
)

// goesOn does with sessions of their own what others do, and sees that it is over although the disk
// of ses_1 hangs.
func goesOn(t *testing.T, s *Store, other *Tree) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		done <- func() error {
			root, release, err := s.at(other.Upper)
			if err != nil {
				return err
			}
			err = errors.Join(os.MkdirAll(filepath.Join(root, "root"), 0o755), os.WriteFile(filepath.Join(root, "root/file"), nil, 0o600))
			release()
			tree, e := s.Freeze("ses_2", Checkpoint{Name: "one"})
			if err = errors.Join(err, e); err != nil {
				return err
			}
			open, err := s.OpenLayers(tree.Lower)
			if err != nil {
				return err
			}
			open.Close()
			disk, free, err := s.NewDisk(loopdisk.Least)
			if err != nil {
				return err
			}
			fork := &Tree{Session: "ses_3", Disk: disk, Lower: tree.Lower}
			err = s.Begin(fork)
			free()
			_, e = s.Reset("ses_2")
			_, _, err2 := s.All()
			_, err3 := s.Unused()
			return errors.Join(err, e, err2, err3, s.Sweep(tree), s.End("ses_3", time.Now()), s.End("ses_2", time.Now()),
				s.Remove("ses_2"), s.Sweep(tree))
		}()
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testrig.Patience):
		t.Error("another session waits for the disk")
	}
}

// TestDiskHangs: while the disk of one session takes no writes, all that others do goes on.
func TestDiskHangs(t *testing.T) {
	s, tree := diskRig(t)
	other := beginOn(t, s, "ses_2", nil)
	if err := put(t, s, tree.Upper, "file", 1); err != nil {
		t.Fatal(err)
	}
	root := must[*os.File](t)(s.disks.hold(tree.Disk))
	defer s.disks.release(tree.Disk)
	dir := must[*os.File](t)(os.Open(onDisk(root, ".")))
	defer dir.Close()
	const freeze, thaw = 0xc0045877, 0xc0045878 // FIFREEZE, FITHAW
	if err := unix.IoctlSetInt(int(dir.Fd()), freeze, 0); err != nil {
		t.Skip("this file system cannot be made to hang: ", err)
	}
	release := sync.OnceFunc(func() { testrig.Must(t, unix.IoctlSetInt(int(dir.Fd()), thaw, 0)) })
	defer release()
	frozen := make(chan error, 1)
	go func() {
		_, err := s.Freeze("ses_1", Checkpoint{})
		frozen <- err
	}()
	testrig.Eventually(t, "a checkpoint is about to make its layer", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.held) > 0
	})
	goesOn(t, s, other)
	select {
	case err := <-frozen:
		t.Errorf("the disk did not hang: %v", err)
	default:
	}
	release()
	testrig.Must(t, <-frozen)
	if tree := must[*Tree](t)(s.Get("ses_1")); len(tree.Lower) != 1 || !there(t, s, tree.Upper) {
		t.Errorf("after it had hung: %+v", tree)
	}
}

// TestMountHangs: while the disk of one session is being mounted, who needs it waits, and nobody else.
func TestMountHangs(t *testing.T) {
	first, tree := diskRig(t)
	other := beginOn(t, first, "ses_2", nil)
	s := must[*Store](t)(Open(first.dir)) // which has nothing mounted
	defer s.Close()
	mount, begun, hangs := s.disks.mount, make(chan struct{}), make(chan struct{})
	var mounts atomic.Int32
	s.disks.mount = func(path string) (*os.File, error) {
		if filepath.Base(path) == tree.Disk {
			if mounts.Add(1) == 1 {
				close(begun)
			}
			<-hangs
		}
		return mount(path)
	}
	end := make(chan error, 2)
	for range cap(end) {
		go func() {
			_, err := s.Laid("ses_1")
			end <- err
		}()
	}
	<-begun
	goesOn(t, s, other)
	close(hangs)
	testrig.Must(t, errors.Join(<-end, <-end))
	if mounts.Load() != 1 {
		t.Errorf("it was mounted %d times", mounts.Load())
	}
}

// TestManyHands: whatever sessions do at once with layers that they share, and whoever sweeps
// meanwhile, no layer goes that a tree names, and none stays that none does.
func TestManyHands(t *testing.T) {
	needs.OpenAt2(t)
	s, _ := rig(t)
	testrig.Must(t, s.Remove("ses_1"))
	over := make(chan struct{})
	var hands, sweepers sync.WaitGroup
	for range 2 {
		sweepers.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					if err := s.Sweep(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	for hand := range 4 {
		hands.Go(func() { oneHand(t, s, hand) })
	}
	hands.Wait()
	close(over)
	sweepers.Wait()
	testrig.Must(t, s.Sweep())
	entries := must[[]os.DirEntry](t)(os.ReadDir(s.layers()))
	if files := must[[]os.DirEntry](t)(os.ReadDir(s.trees())); len(entries)+len(files) > 0 {
		t.Errorf("%d layers and %d files of trees are left", len(entries), len(files))
	}
}

// oneHand works on a session, and on forks of it that take its layers along when it goes.
func oneHand(t *testing.T, s *Store, hand int) {
	r := rand.New(rand.NewPCG(uint64(hand), 1))
	now := fmt.Sprintf("ses_%d", hand)
	begin(t, s, now, nil)
	for step := range 80 {
		tree := must[*Tree](t)(s.Get(now))
		release := s.Hold(tree.All())
		var err error
		switch r.IntN(5) {
		case 0:
			_, err = s.Reset(now)
		case 1: // a fork, after which this one goes
			next := fmt.Sprintf("ses_%d_%d", hand, step)
			err = errors.Join(s.Begin(&Tree{Session: next, Lower: tree.Layers()[:min(len(tree.Layers()), 20)]}), s.Remove(now))
			now = next
		case 2: // changes are taken over by another tree
			from := fmt.Sprintf("ses_%d_%d_from", hand, step)
			err = errors.Join(s.Begin(&Tree{Session: from, Lower: tree.Layers()}), s.Take(now, from))
		default:
			write(t, s, tree, "file")
			if _, err = s.Freeze(now, Checkpoint{}); errors.Is(err, ErrDeep) {
				_, err = s.Reset(now)
			}
		}
		release()
		if err != nil {
			t.Errorf("step %d: %v", step, err)
		}
		for _, l := range must[*Tree](t)(s.Get(now)).All() {
			if _, err := os.Stat(filepath.Join(s.layers(), l)); errors.Is(err, fs.ErrNotExist) {
				t.Errorf("step %d: layer %s of its tree has gone", step, l)
				return
			}
		}
	}
	testrig.Must(t, s.Remove(now))
}
