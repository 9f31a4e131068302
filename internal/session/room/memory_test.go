package room

import "testing"

func TestMemory(t *testing.T) {
	t.Parallel()
	v, err := Memory()
	if err != nil || v.Size < 64*mib || v.Free <= 0 || v.Free > v.Size {
		t.Errorf("%+v, %v", v, err)
	}
	floor := Floor{Bytes: 256 * mib}
	for size, want := range map[int64]int64{24 << 30: 256 * mib, 1 << 30: 128 * mib} {
		if got := floor.Of(size); got != want {
			t.Errorf("of %d: %d, want %d", size, got, want)
		}
	}
}
