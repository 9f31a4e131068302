package remark

import (
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool/run"
)

func TestLastSaying(t *testing.T) {
	for text, want := range map[string]string{
		"":                    "",
		"a\nb":                "",
		"No space LEFT":       "no space left",
		"x: no space left: y": "x: no space left: y",
		"no space left 1\nit is full\nno space left 2\n": "no space left 2",
		"no space left\n" + strings.Repeat("x", 16<<10):  "",
	} {
		if got := lastSaying(text, []string{"no space left"}); got != want {
			t.Errorf("%.40q: %q, want %q", text, got, want)
		}
	}
}

// TestSizes: the brief names the places that a result may name, with the same sizes.
func TestSizes(t *testing.T) {
	const mib = 1 << 20
	limits := client.Limits{Memory: 2048 * mib, Disk: 4096 * mib}
	small := limits
	small.Tmp = 64 * mib
	bind, overlay, empty := client.Worktree{Mode: client.WorktreeBind, Target: "/w"}, client.Worktree{Mode: client.WorktreeOverlay, Target: "/w"}, client.Worktree{Mode: client.WorktreeEmpty, Target: "/w"}
	for _, tt := range []struct {
		limits   client.Limits
		worktree client.Worktree
		homeDisk bool
		caches   []store.CachePlace
		root     bool
		want     string
	}{
		{limits, bind, true, nil, false, "4GiB in /home/tool and /tmp together, 1GiB in /dev/shm"},
		{limits, empty, true, nil, false, "4GiB in /home/tool, /tmp and /w together, 1GiB in /dev/shm"},
		{limits, overlay, true, nil, false, "4GiB in /home/tool and /tmp together, 1GiB in /dev/shm, 4GiB in /w"},
		{limits, overlay, true, nil, true, "4GiB in /home/tool and /tmp together, 1GiB in /dev/shm, 4GiB in /w, 4GiB in /"},
		{small, bind, true, nil, false, "4GiB in /home/tool, 1GiB in /dev/shm, 64MiB in /tmp"},
		{limits, bind, false, nil, false, "768MiB in /home/tool, 512MiB in /dev/shm, 256MiB in /tmp"}, // a host without disks
		{limits, bind, true, []store.CachePlace{{Cache: "go", Target: "/caches/go", Size: 8 * mib}}, false, "8MiB in /caches/go, 4GiB in /home/tool and /tmp together, 1GiB in /dev/shm"},
	} {
		row := &store.Session{Session: client.Session{Limits: tt.limits, Worktree: tt.worktree}, HomeDisk: tt.homeDisk, CachePlaces: tt.caches}
		got := Sizes(row, tt.root)
		if strings.Join(got, ", ") != tt.want {
			t.Errorf("%+v: %q, want %s", tt, got, tt.want)
		}
		brief := strings.Join(got, ", ")
		for _, r := range roomsOf(row) {
			if _, said := Full(&run.Exit{Reason: run.ReasonExit, Full: r.Place}, "", "", row); r.Size > 0 && (tt.root || r.Place != "/") &&
				(!strings.Contains(said, "["+r.Place+" is full ("+r.Size.String()+", ") || !strings.Contains(brief, r.Size.String()+" in ") || !strings.Contains(brief, r.Place)) {
				t.Errorf("%s: a result says %s, the brief %s", r.Place, said, brief)
			}
		}
	}
}
