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

func TestPending(t *testing.T) {
	t.Parallel()
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode                                                     \n"
	full := "   0: 0100007F:8AE5 0100007F:D5B0 01 00000000:00033E00 00:00000000 00000000     0        0 0 1 00000000c2a6e8b3 20 0 0 10 -1                         \n"
	theirs := strings.ReplaceAll(full, " 0 1 0", " 13578963 1 0")
	listens := strings.ReplaceAll(full, " 01 ", " 0A ")
	closed := strings.ReplaceAll(full, " 01 ", " 08 ")
	for _, tt := range []struct {
		name, list string
		all, want  int64
	}{
		{"nothing", "", 0, 0},
		{"no sockets", head, 0, 0},
		{"some, whoever sent has gone", head + full + theirs + closed + listens, 4, 2 * 0x33e00},
		{"broken", head + "x y z\n1 2 3 4 5\n", 2, 0},
		{"more than is read", head + theirs, 11, 10 * 64 << 10},
		{"more than it may be", head + strings.Repeat(full, 1<<10), 1 << 12, 5 * 0x33e00},
	} {
		if got := pending(strings.NewReader(tt.list), tt.all, 1<<20); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
	const summary = "sockets: used 1\nTCP: inuse 3 orphan 0 tw 0 alloc 1 mem 178\nUDP: inuse 17 mem 0\nUDPLITE: inuse 0\nRAW: inuse 5\n"
	for protocol, want := range map[string]int64{"UDP": 17, "UDPLITE": 0, "RAW": 5, "UDP6": 0} {
		if got := inUse(summary, protocol); got != want {
			t.Errorf("%s: %d in use, want %d", protocol, got, want)
		}
	}
	if got := inUse("TCP6: inuse 4\nUDP6: inuse 2\n", "UDP6"); got != 2 {
		t.Errorf("of IPv6 there are %d", got)
	}
}
