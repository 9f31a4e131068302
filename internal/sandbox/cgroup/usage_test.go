package cgroup

import "testing"

func TestSumIO(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       int64
	}{
		{"nothing", "", 0},
		{"v1", "8:0 Read 4096\n8:0 Write 512\n8:0 Sync 4608\n8:0 Async 0\n8:0 Discard 0\n8:0 Total 4608\n254:0 Read 1\n254:0 Write 2\nTotal 4611", 4611},
		{"v1 without devices", "Total 0", 0},
		{"v2", "8:0 rbytes=4096 wbytes=512 rios=1 wios=1 dbytes=7 dios=0\n254:0 rbytes=1 wbytes=2 rios=1 wios=1 dbytes=0 dios=0", 4611},
		{"v2 without numbers", "8:0", 0},
		{"not numbers", "8:0 Read many\n8:0 rbytes=x wbytes=-5", 0},
	} {
		if got := sumIO(tt.text); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
	}
}
