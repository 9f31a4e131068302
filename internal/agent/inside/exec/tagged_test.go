package exec

import (
	"fmt"
	"testing"
)

func TestTags(t *testing.T) {
	tags := newTags()
	seen := make(map[uint32]bool)
	for range lastTag - firstTag + 1 {
		tag := tags.take()
		if tag < firstTag || tag > lastTag || seen[tag] {
			t.Fatalf("tag %d is out of range or taken", tag)
		}
		seen[tag] = true
	}
	if tag := tags.take(); tag != 0 {
		t.Errorf("tag %d, although all are in use", tag)
	}
	tags.give(firstTag + 7)
	if tag := tags.take(); tag != firstTag+7 {
		t.Errorf("tag %d, want the one that is free", tag)
	}
}

func TestTaggedHas(t *testing.T) {
	threads := func(state, groups string, n int) []byte {
		return fmt.Appendf(nil, "Name:\tGroups:\t50001\nState:\t%s\nGroups:\t%s\nNSsid:\t70\t7\nThreads:\t%d\n", state, groups, n)
	}
	status := func(state, groups string) []byte { return threads(state, groups, 1) }
	tag, sid := &tagged{tag: 50001}, &tagged{sid: 7}
	for _, tt := range []struct {
		name   string
		g      *tagged
		status []byte
		want   bool
	}{
		{"its own", tag, status("S (sleeping)", "50001 "), true},
		{"one of several", tag, status("T (stopped)", "4 50001 60000 "), true},
		{"longer", tag, status("S (sleeping)", "500011 "), false},
		{"none", tag, status("S (sleeping)", " "), false},
		{"a zombie", tag, status("Z (zombie)", "50001 "), false},
		{"a zombie that does not count", tag, threads("Z (zombie)", "50001 ", 0), false},
		{"only its first thread has ended", tag, threads("Z (zombie)", "50001 ", 2), true},
		{"another's, of which the first thread has ended", tag, threads("Z (zombie)", "50002 ", 2), false},
		{"dead", tag, status("X (dead)", "50001 "), false},
		{"by session", sid, status("R (running)", " "), true},
		{"another session", &tagged{sid: 8}, status("R (running)", " "), false},
		{"nothing", tag, nil, false},
	} {
		if got := tt.g.has(tt.status); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}
