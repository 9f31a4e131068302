package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/metrics"
)

// TestSpace: the sizes are those of the daemon's files and of no others.
func TestSpace(t *testing.T) {
	state, logs := t.TempDir(), t.TempDir()
	for file, size := range map[string]int64{
		"toold.db": 1, "toold.db-wal": 2, "toold.db-shm": 4, "toold.db.journal": 8, "owner": 1 << 30,
		"output/ses_a/call_1": 16, "output/ses_a/call_1.streams": 32, "output/ses_b/call_2": 64,
		logs + "/log.jsonl": 128, logs + "/log.00000000000000000001.jsonl": 256, logs + "/log.old.jsonl": 1 << 30, logs + "/syslog": 1 << 30,
	} {
		if !filepath.IsAbs(file) {
			file = filepath.Join(state, file)
		}
		sparse(t, file, size)
	}
	s := newSpace(state, logs+"/log.jsonl", func(s *metrics.Space) { s.Worktrees = 2048 })
	s.images = func(context.Context) ([]client.Image, error) { return []client.Image{{Size: 512}, {Size: 1024}}, nil }
	defer s.close()
	got := s.ask()
	for name, d := range map[string]metrics.Disk{"state": got.State, "audit": got.Audit} {
		if d.Free <= 0 || d.Size < d.Free {
			t.Errorf("disk of %s: %d of %d bytes are free", name, d.Free, d.Size)
		}
	}
	want := metrics.Space{
		State: got.State, Audit: got.Audit, MinFree: minFree, Database: 1 + 2 + 4, Journal: 8, Outputs: 16 + 32 + 64, AuditLog: 128 + 256, Images: 512 + 1024, Worktrees: 2048,
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	missing := newSpace(state+"/none", logs+"/none/log.jsonl", func(*metrics.Space) {})
	defer missing.close()
	if got, want := missing.ask(), (metrics.Space{MinFree: minFree}); got != want {
		t.Errorf("of what is not there: got %+v, want %+v", got, want)
	}
}

// sparse makes a file of this size, and the directories above it.
func sparse(t *testing.T, file string, size int64) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, size); err != nil {
		t.Fatal(err)
	}
}

// TestSpaceIsCheap: the files are looked at once a minute, however often somebody asks,
// and a look that takes long holds up nobody for long.
func TestSpaceIsCheap(t *testing.T) {
	state := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		looks, takes := 0, time.Duration(0)
		s := newSpace(state, state+"/audit.jsonl", func(*metrics.Space) {})
		s.images = func(context.Context) ([]client.Image, error) {
			looks++
			time.Sleep(takes)
			return []client.Image{{Size: client.Size(looks)}}, nil
		}
		defer s.close()
		ask := func(want int64) {
			t.Helper()
			begin := time.Now()
			if got := s.ask().Images; got != want || time.Since(begin) > spaceWait {
				t.Errorf("look %d, want %d, after %s", got, want, time.Since(begin))
			}
		}
		for range 20 {
			ask(1)
		}
		takes = 10 * spaceWait
		time.Sleep(spaceFresh)
		for range 5 {
			ask(1) // the one before, while the next goes on
		}
		time.Sleep(takes)
		for range 5 {
			ask(2)
		}
	})
}
