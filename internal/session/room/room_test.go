package room

import (
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
)

const mib = 1 << 20

func TestFloor(t *testing.T) {
	for _, tt := range []struct {
		floor      Floor
		size, want int64
	}{
		{Floor{}, 1 << 40, 0},
		{Floor{Bytes: 1 << 30}, 1 << 40, 1 << 30},
		{Floor{Bytes: 1 << 30}, 400 * mib, 50 * mib}, // a small disk
		{Floor{Percent: 5}, 1000, 50},
	} {
		if got := tt.floor.Of(tt.size); got != tt.want {
			t.Errorf("%+v of %d: %d, want %d", tt.floor, tt.size, got, tt.want)
		}
	}
}

// TestLook: the nearer to the floor, the more is done, and what is on its way to the disk and
// how fast it fills count as well.
func TestLook(t *testing.T) {
	const size = 10000 * mib
	look := func(unwritten int64, free ...int64) (l Level, next time.Duration) {
		w := Watch{Floor: Floor{Bytes: 100 * mib}, Unwritten: func() int64 { return unwritten }}
		for _, f := range free {
			l, next = w.Look(Volume{Free: f * mib, Size: size})
		}
		return l, next
	}
	for _, tt := range []struct {
		unwritten int64
		free      []int64
		want      Level
		soon      bool
	}{
		{0, []int64{9000}, Enough, false},
		{500 * mib, []int64{9000}, Enough, false},
		{0, []int64{900}, Enough, true},
		{0, []int64{151}, Enough, true},
		{0, []int64{149}, Low, true},
		{0, []int64{124}, Tight, true},
		{250 * mib, []int64{390}, Low, true},
		{380 * mib, []int64{390}, Tight, true},
		{0, []int64{390, 390, 389}, Enough, true},
		{0, []int64{210, 180}, Tight, true}, // it falls fast
		{0, []int64{390, 100}, Tight, true},
		{0, []int64{99, 300, 300}, Enough, true}, // there is room again
	} {
		if l, next := look(tt.unwritten, tt.free...); l != tt.want || next < Often || next > Seldom || (next < Seldom) != tt.soon {
			t.Errorf("%v MiB free, %d on the way: level %v, next %v; want %v, soon %v", tt.free, tt.unwritten/mib, l, next, tt.want, tt.soon)
		}
	}
	w := Watch{}
	if l, _ := w.Look(Volume{}); l != Enough {
		t.Error("no floor is a floor")
	}
}

func TestOvercommitted(t *testing.T) {
	v := Volume{Free: 100 * mib}
	for _, tt := range []struct {
		promised, more client.Size
		times          float64
		says           string
	}{
		{900 * mib, 100 * mib, 10, ""},
		{900 * mib, 101 * mib, 10, "disks of 900MiB together, this one would have 101MiB, and that is more than 10 times the 100MiB"},
		{1 << 50, 1 << 50, 0, ""},
	} {
		if got := Overcommitted(v, tt.promised, tt.more, tt.times); (got == "") != (tt.says == "") || !strings.Contains(got, tt.says) {
			t.Errorf("%v and %v: %q", tt.promised, tt.more, got)
		}
	}
}
