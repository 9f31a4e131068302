package room

import (
	"testing"
	"time"

	"github.com/toold/toold/internal/testrig"
)

// TestLooks: a file system that hangs keeps no other one from its answer, however often it is
// asked, and is looked at as any other when it answers at last.
func TestLooks(t *testing.T) {
	t.Parallel()
	dir, abort := testrig.Hanging(t)
	here, hangs, gone := t.TempDir(), dir+"/x", t.TempDir()+"/absent"
	var l Looks
	for range 20 {
		testrig.Eventually(t, "the one that answers is seen", func() bool {
			seen := l.All([]string{hangs, here, here, gone, hangs}, 10*time.Millisecond)
			_, hung := seen[hangs]
			_, absent := seen[gone]
			if hung || absent {
				t.Fatalf("saw %v", seen)
			}
			return seen[here].Size > 0
		})
	}
	if !l.Silent(hangs, 0) || l.Silent(hangs, time.Hour) {
		t.Error("one that hangs answers, or has hung for an hour")
	}
	abort()
	testrig.Eventually(t, "the other one has answered", func() bool { return !l.Silent(hangs, 0) })
}
