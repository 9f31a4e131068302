package worktree_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/worktree"
)

// A file system that hangs costs its user's request and nobody else's.
func TestPinnerUnresponsive(t *testing.T) {
	root, _ := tree(t)
	dir, abort := testrig.Hanging(t)
	p := worktree.Pinner{Patience: 50 * time.Millisecond}
	const uid, other = 1000, 1001
	refused := 0
	for range 20 {
		d, err := p.Pin(uid, dir+"/project", worktree.Rules{Roots: []string{dir}})
		if !errors.Is(err, worktree.ErrUnresponsive) {
			t.Fatalf("pinned %v, %v, want %v", d, err, worktree.ErrUnresponsive)
		}
		refused++
	}
	p.Patience = 0
	if d, err := p.Pin(uid, root+"/project", worktree.Rules{Roots: []string{root}}); !errors.Is(err, worktree.ErrUnresponsive) {
		t.Errorf("with %d hanging, another is looked at: %v, %v", refused, d, err)
	}
	d, err := p.Pin(other, root+"/project", worktree.Rules{Roots: []string{root}})
	if err != nil {
		t.Fatalf("another user: %v", err)
	}
	d.Close()

	abort()
	deadline := time.Now().Add(20 * time.Second)
	for {
		d, err := p.Pin(uid, root+"/project", worktree.Rules{Roots: []string{root}})
		if err == nil {
			d.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("aborted, and still: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// What a Pinner finds and refuses is what Pin does.
func TestPinner(t *testing.T) {
	root, _ := tree(t)
	var p worktree.Pinner
	rules := worktree.Rules{Roots: []string{root}}
	d, err := p.Pin(0, root+"/project", rules)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Path != root+"/project" {
		t.Errorf("pinned %s", d.Path)
	}
	if d, err := p.Pin(0, root+"/link", rules); !errors.Is(err, worktree.ErrInvalidPath) {
		t.Errorf("link: %v, %v", d, err)
	}
}

// A burst takes turns: no request is refused for those before it.
func TestPinnerBurst(t *testing.T) {
	root, _ := tree(t)
	var p worktree.Pinner
	rules := worktree.Rules{Roots: []string{root}}
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			d, err := p.Pin(0, root+"/project", rules)
			if err != nil {
				t.Error(err)
				return
			}
			d.Close()
		})
	}
	wg.Wait()
}
