package cgroup

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
)

func TestParseCPUs(t *testing.T) {
	for in, want := range map[string][]int{
		"0": {0}, "0-3": {0, 1, 2, 3}, "0-1,4,6-7": {0, 1, 4, 6, 7},
		"": nil, "x": nil, "3-1": nil, "-1": nil, "0-99999999": nil, "0,": nil,
	} {
		got, err := parseCPUs(in)
		if !slices.Equal(got, want) && err == nil || (err != nil) != (want == nil) {
			t.Errorf("%q: %v, %v, want %v", in, got, err, want)
		}
	}
}

func TestPickCPUs(t *testing.T) {
	all := []int{0, 1, 2, 3}
	for cpus, want := range map[float64]int{0.1: 1, 1: 1, 1.5: 2, 4: 4, 64: 4} {
		got, err := parseCPUs(pickCPUs(all, cpus, "ses_x"))
		if err != nil || len(got) != want {
			t.Errorf("%v processors: %v, %v, want %d", cpus, got, err, want)
		}
		slices.Sort(got)
		if len(slices.Compact(got)) != want {
			t.Errorf("%v processors: one twice in %v", cpus, got)
		}
	}
	first := map[string]bool{}
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		first[pickCPUs(all, 1, id)] = true
	}
	if len(first) < 2 {
		t.Error("all small sessions are on one processor")
	}
}

func TestNoControllers(t *testing.T) {
	for name, l := range map[string]client.Limits{
		"memory": {Memory: 1 << 30}, "pids": {PIDs: 10}, "cpus": {CPUs: 1},
	} {
		err := new(Tree).Check(l)
		if !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), "limits."+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := new(Tree).Check(client.Limits{Tmp: 1, OpenFiles: 1, FileSize: 1, Wall: 1}); err != nil {
		t.Error(err)
	}
}
