package main

import (
	"slices"
	"testing"

	"github.com/toold/toold/internal/config"
	"github.com/toold/toold/internal/tool"
)

// TestMetricLabels: the closed sets of the labels come from what there is.
func TestMetricLabels(t *testing.T) {
	r := tool.NewRegistry()
	if got := permissionNames(r); !slices.Contains(got, "bash") || !slices.Contains(got, "edit") || slices.Contains(got, "write") || slices.Contains(got, "") {
		t.Errorf("permissions %v: want those that calls are judged by", got)
	}
	for _, name := range toolNames(r) {
		if _, ok := r.Get(name); !ok {
			t.Errorf("there is no tool %q", name)
		}
	}
	c := config.Default()
	c.Tenants = map[string]config.Tenant{"b": {}, "a": {}}
	if got := tenantNames(c); !slices.Equal(got, []string{"a", "b", "default"}) {
		t.Errorf("tenants %v", got)
	}
}
