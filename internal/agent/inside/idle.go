package inside

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync"
)

// fewThreads is what an idle agent needs: the main thread, the fork thread, the
// runtime's own, and one or two to wake up with.
const fewThreads = 6

// releaseMemory gives back what the last calls have used. There is an agent in
// every session, and most sessions wait for somebody to think.
func releaseMemory() {
	// The first collection only ages the pools of buffers, the second one
	// empties them.
	runtime.GC()
	debug.FreeOSMemory()
	trimThreads()
}

// trimThreads ends threads that the runtime keeps for later, some 40 KiB each
// with what the kernel holds for them: a thread whose goroutine ends while it is
// locked to it ends as well.
func trimThreads() {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	var wg sync.WaitGroup
	for range len(tasks) - fewThreads {
		wg.Go(runtime.LockOSThread)
	}
	wg.Wait()
}
