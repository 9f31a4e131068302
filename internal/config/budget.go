package config

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/toold/toold/client"
)

// budgets checks [budget], and those of profiles and tenants.
func (v *validator) budgets(c *Config) {
	v.budget([]string{"budget"}, &c.Budget)
	for _, name := range slices.Sorted(maps.Keys(c.Profiles)) {
		p := c.Profiles[name]
		v.budget([]string{"profile", name, "budget"}, &p.Budget)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Tenants)) {
		t := c.Tenants[name]
		v.budget([]string{"tenant", name, "budget"}, &t.Budget)
	}
}

func (v *validator) budget(path []string, b *client.Budget) {
	at := func(key string) string { return strings.Join(append(slices.Clone(path), key), ".") }
	v.check(b.Calls >= 0, at("calls"), "must not be negative; 0 is no bound")
	v.check(b.Output >= 0, at("output"), "must not be negative; 0 is no bound")
	for key, d := range map[string]client.Duration{"cpu": b.CPU, "wall": b.Wall} {
		v.check(d == 0 || time.Duration(d) >= time.Second, at(key), "must be at least 1s; 0 is no bound")
	}
}
