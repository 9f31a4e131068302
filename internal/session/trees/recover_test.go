package trees

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/worktree/apply"
)

// TestRecoveredAttrs: a log says in plain values what was recovered.
func TestRecoveredAttrs(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]*apply.Recovered{
		"source=/s written=2 removed=1 left=1": {Source: "/s", Applied: &client.Applied{WrittenCount: 2, RemovedCount: 1}, Left: []apply.Conflict{{Path: "x"}}},
		"source=/s written=0 removed=0 left=0": {Source: "/s"},
	} {
		var b strings.Builder
		slog.New(slog.NewTextHandler(&b, nil)).Warn("it", recoveredAttrs(r)...)
		if _, got, _ := strings.Cut(strings.TrimSpace(b.String()), "msg=it "); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestRecoverBeside: applies whose sources hang keep no other one from being finished, however many they are.
func TestRecoverBeside(t *testing.T) {
	t.Parallel()
	const hang, others = 2*recoverAtOnce + 1, 3 * recoverAtOnce
	dirs := make(map[string]string)
	for i := range hang {
		dirs[fmt.Sprint("hangs ", i)] = "hangs"
	}
	var left sync.WaitGroup
	for i := range others {
		dirs[fmt.Sprint("ends ", i)] = "ends"
		left.Add(1)
	}
	eachOf(dirs, time.Millisecond, func(_, dir string) {
		if dir == "ends" {
			left.Done()
		} else {
			left.Wait()
		}
	})
}

// TestRecoverAtOnce: no more of them are under way than there are turns, while none of them hangs.
func TestRecoverAtOnce(t *testing.T) {
	t.Parallel()
	dirs := make(map[string]string)
	for i := range 5 * recoverAtOnce {
		dirs[fmt.Sprint(i)] = ""
	}
	var mu sync.Mutex
	now, most, done := 0, 0, 0
	eachOf(dirs, time.Hour, func(string, string) {
		mu.Lock()
		now, done = now+1, done+1
		most = max(most, now)
		mu.Unlock()
		runtime.Gosched()
		mu.Lock()
		now--
		mu.Unlock()
	})
	if done != len(dirs) || most > recoverAtOnce {
		t.Errorf("%d of %d were done, %d at once", done, len(dirs), most)
	}
}
