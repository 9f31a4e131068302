package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/tomltext"
)

// boundLimits settles what holds for a limit of which only one of the two was set,
// what sessions get or the most that one may ask for. Set in [limits] alone it is
// both: that is what it meant before there was [limits.max]. Set in [limits.max]
// alone, the default gives way to it.
func (c *Config) boundLimits() {
	alone := c.bound([]string{"limits"}, &c.Limits)
	for _, name := range slices.Sorted(maps.Keys(c.Tenants)) {
		t := c.Tenants[name]
		alone = append(alone, c.bound([]string{"tenant", name, "limits"}, &t.Limits)...)
		c.Tenants[name] = t
	}
	if len(alone) == 0 {
		return
	}
	keys := make([]string, len(alone))
	for i, path := range alone {
		keys[i] = tomltext.Dotted(path...)
	}
	at := c.origins.of(alone[0])
	c.Notes = append(c.Notes, tomltext.Problem{Source: at.source, Line: at.line, Message: strings.Join(keys, ", ") +
		": each is also the most that a session may ask for, until the same key is set in [limits.max] (of a tenant: [tenant.NAME.limits.max])"})
}

// bound does so for one section. It gives the keys that were set without a maximum.
func (c *Config) bound(section []string, l *Limits) (alone [][]string) {
	for key, own := range limitsOf(&l.Limits) {
		path := append(slices.Clone(section), key)
		set := c.origins.has(path...) || key == "wall" && len(section) == 1 && c.origins.has("tools", "bash", "max_timeout")
		setMax := c.origins.has(append(slices.Clone(section), "max", key)...)
		most := limitOf(&l.Max, key)
		switch {
		case set && !setMax:
			most.Set(own)
			alone = append(alone, path)
			c.origins.follow(append(slices.Clone(section), "max", key))
		case setMax && !set && number(own) > number(most):
			own.Set(most)
			c.origins.follow(path)
		}
	}
	return alone
}

// limitsOf goes through the limits by their keys.
func limitsOf(l *client.Limits) func(yield func(string, reflect.Value) bool) {
	return func(yield func(string, reflect.Value) bool) {
		for f, v := range reflect.ValueOf(l).Elem().Fields() {
			if !yield(keyOf(f), v) {
				return
			}
		}
	}
}

// limitOf is the limit of a key that limitsOf gave.
func limitOf(l *client.Limits, key string) reflect.Value {
	v, _ := fieldOf(reflect.ValueOf(l).Elem(), key)
	return v
}

// number makes limits of all kinds comparable.
func number(v reflect.Value) float64 {
	if v.CanInt() {
		return float64(v.Int())
	}
	return v.Float()
}

// Bounds of limits: below them no session works, above them no host is.
const (
	minMemory = 64 << 20
	maxCPUs   = 4096
)

// limits checks one section and its maxima. Those of a tenant may be 0, which is
// not set, and must not exceed most.
func (v *validator) limits(section []string, l *Limits, most *client.Limits) {
	v.limitValues(section, &l.Limits, most == nil)
	v.limitValues(append(slices.Clone(section), "max"), &l.Max, most == nil)
	for key, own := range limitsOf(&l.Limits) {
		path := append(slices.Clone(section), key)
		if m := limitOf(&l.Max, key); number(m) > 0 && number(own) > number(m) {
			v.problem(path, "is more than a session may ask for (%s.max.%s, %v)", tomltext.Dotted(section...), key, m)
		}
		if most == nil {
			continue
		}
		if of := append(slices.Clone(section), "max", key); !v.at.followed(of) {
			path = of
		}
		if m := limitOf(most, key); number(limitOf(&l.Max, key)) > number(m) {
			v.problem(path, "is more than limits.max.%s (%v), which no tenant may exceed", key, m)
		}
	}
}

func (v *validator) limitValues(section []string, l *client.Limits, required bool) {
	check := func(ok bool, key, format string, args ...any) {
		// What follows from another setting is looked at there.
		if path := append(slices.Clone(section), key); !ok && !v.at.followed(path) {
			v.problem(path, format, args...)
		}
	}
	check(l.CPUs >= 0.01 && l.CPUs <= maxCPUs || !required && l.CPUs == 0, "cpus", "%v is not between 0.01 and %d cores", l.CPUs, maxCPUs)
	for _, x := range []struct {
		key  string
		got  int64
		min  int64
		want string
	}{
		{"memory", int64(l.Memory), minMemory, "64MiB"},
		{"pids", l.PIDs, 16, "16"},
		{"tmp", int64(l.Tmp), 1 << 20, "1MiB"},
		{"open_files", l.OpenFiles, 64, "64"},
		{"file_size", int64(l.FileSize), 1 << 20, "1MiB"},
		{"disk", int64(l.Disk), 16 << 20, "16MiB"},
		{"calls", int64(l.Calls), 1, "1"},
		{"output", int64(l.Output), 64 << 10, "64KiB"},
		{"wall", int64(l.Wall), 1e9, `"1s"`},
	} {
		check(x.got >= x.min || (!required || x.key == "tmp") && x.got == 0, x.key, "must be at least %s", x.want)
	}
}
