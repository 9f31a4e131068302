package layers

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSetBack: how far the wall clock was set back since a tree began is told by the clock of the boot
// that nobody can set, and over a boot by a beginning that is yet to come.
func TestSetBack(t *testing.T) {
	const hour = int64(time.Hour)
	ahead := clock(unix.CLOCK_REALTIME) - clock(unix.CLOCK_BOOTTIME)
	begun := func(change func(*Tree)) *Tree {
		tree := new(Tree)
		tree.begin(Now())
		change(tree)
		return tree
	}
	for name, tt := range map[string]struct {
		tree *Tree
		want int64
	}{
		"nobody has set it":                {begun(func(*Tree) {}), 0},
		"set back":                         {begun(func(b *Tree) { b.Clock = ahead + hour }), hour},
		"set back, and long ago begun":     {begun(func(b *Tree) { b.Clock, b.Since = ahead+hour, b.Since-5*hour }), hour},
		"set forward":                      {begun(func(b *Tree) { b.Clock = ahead - hour }), 0},
		"steered":                          {begun(func(b *Tree) { b.Clock = ahead + int64(time.Second)/2 }), 0},
		"over a boot":                      {begun(func(b *Tree) { b.Boot = "another" }), 0},
		"set back over a boot":             {begun(func(b *Tree) { b.Boot, b.Since = "another", b.Since+hour }), hour},
		"over a boot, by its own clock":    {begun(func(b *Tree) { b.Boot, b.Clock = "another", ahead+hour }), 0},
		"of an older daemon":               {&Tree{Since: Now()}, 0},
		"of an older daemon, and set back": {&Tree{Since: Now() + hour}, hour},
	} {
		// Of a clock that is steered meanwhile, or a while between two looks, it is not exact.
		if got := tt.tree.SetBack(); got > tt.want+int64(time.Minute) || got < tt.want-int64(time.Minute) || tt.want == 0 && got != 0 {
			t.Errorf("%s: %v, want %v", name, time.Duration(got), time.Duration(tt.want))
		}
	}
}
