package trees

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
)

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
