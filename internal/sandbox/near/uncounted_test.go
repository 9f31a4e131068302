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

func TestUnread(t *testing.T) {
	t.Parallel()
	const head = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops            \n"
	full := "15443: 0100007F:E74F 00000000:0000 07 00000010:00033E00 00:00000000 00000000     0        0 21158218 2 0000000044790136 0      \n"
	empty := strings.ReplaceAll(full, "33E00", "00000")
	for _, tt := range []struct {
		name, list string
		all, want  int64
	}{
		{"nothing", "", 0, 0},
		{"no sockets", head, 0, 0},
		{"some", head + full + empty + full, 3, 2 * 0x33e00},
		{"some were closed", head + full, 0, 0x33e00},
		{"broken", head + "x y z\n1 2 3 4 5\n", 2, 0},
		{"more than is read", (head + strings.Repeat(empty, 1<<14))[:1<<20], 1 << 14, (1<<14 - 8192 + 1) * 64 << 10},
	} {
		if got := unread(tt.list, tt.all); got != tt.want {
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
