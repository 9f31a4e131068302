package near

import (
	"strings"
	"testing"
)

func TestQueued(t *testing.T) {
	t.Parallel()
	const head = "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n"
	line := "00000000739cb1d1 0   4242       00000000 212992   1024     0        2        7        13578963\n"
	empty := strings.ReplaceAll(line, "212992", "0     ")
	for _, tt := range []struct {
		name, list string
		want       int64
	}{
		{"nothing", "", 0},
		{"no sockets", head, 0},
		{"two", head + line + line, 2 * (212992 + 1024)},
		{"empty ones", head + empty + empty + empty, 3 * 64 << 10},
		{"full and empty", head + line + empty, 212992 + 1024 + 64<<10},
		{"broken", head + "x y\n-1 a b c d e\n" + line[:40], 0},
		{"more than is read", (head + strings.Repeat(empty, 1<<14))[:1<<20], 11037 * 64 << 10},
	} {
		if got := queued(tt.list); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
