package config

import (
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
)

// TestLimitsAndMaxima: each key by itself. What a file from before there was
// [limits.max] says means what it meant.
func TestLimitsAndMaxima(t *testing.T) {
	def := Default().Limits
	for _, tt := range []struct {
		name, doc   string
		memory, max client.Size
		pids, most  int64
		note        string // the keys that it begins with; "" = there is none
	}{
		{"nothing", "", def.Memory, def.Max.Memory, def.PIDs, def.Max.PIDs, ""},
		{"of before", "[limits]\nmemory = '4GiB'\n", 4 << 30, 4 << 30, def.PIDs, def.Max.PIDs, "x.toml:2: limits.memory: "},
		{"above the default maximum", "[limits]\nmemory = '64GiB'\npids = 9999\n", 64 << 30, 64 << 30, 9999, 9999, "x.toml:2: limits.memory, limits.pids: "},
		{"both", "[limits]\nmemory = '4GiB'\n[limits.max]\nmemory = '8GiB'\n", 4 << 30, 8 << 30, def.PIDs, def.Max.PIDs, ""},
		{"one of each", "[limits]\npids = 100\n[limits.max]\nmemory = '8GiB'\n", def.Memory, 8 << 30, 100, 100, "x.toml:2: limits.pids: "},
		{"a maximum below the default", "[limits.max]\nmemory = '1GiB'\n", 1 << 30, 1 << 30, def.PIDs, def.Max.PIDs, ""},
		{"the same twice", "[limits]\npids = 100\n[limits.max]\npids = 100\n", def.Memory, def.Max.Memory, 100, 100, ""},
	} {
		c, err := Parse("x.toml", []byte(tt.doc))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		l := c.Limits
		if l.Memory != tt.memory || l.Max.Memory != tt.max || l.PIDs != tt.pids || l.Max.PIDs != tt.most {
			t.Errorf("%s: memory %v of %v, pids %d of %d", tt.name, l.Memory, l.Max.Memory, l.PIDs, l.Max.PIDs)
		}
		if tt.note == "" != (len(c.Notes) == 0) || tt.note != "" && (len(c.Notes) != 1 || !strings.HasPrefix(c.Notes[0].String(), tt.note)) {
			t.Errorf("%s: notes %v, want one that begins with %q", tt.name, c.Notes, tt.note)
		}
	}
}

// TestMaximaOfTenants: what a tenant's section says alone is its maximum, too.
func TestMaximaOfTenants(t *testing.T) {
	c, err := Parse("x.toml", []byte(`
[tenant.a]
uids = [7]
[tenant.a.limits]
memory = "4GiB"
pids = 100
[tenant.a.limits.max]
pids = 200
cpus = 1
`))
	if err != nil {
		t.Fatal(err)
	}
	l := c.Tenants["a"].Limits
	if l.Memory != 4<<30 || l.Max.Memory != 4<<30 || l.PIDs != 100 || l.Max.PIDs != 200 || l.CPUs != 0 || l.Max.CPUs != 1 || l.Max.Wall != 0 {
		t.Errorf("got %+v", l)
	}
	if len(c.Notes) != 1 || !strings.HasPrefix(c.Notes[0].String(), "x.toml:5: tenant.a.limits.memory: ") {
		t.Errorf("notes %v", c.Notes)
	}
}

// TestWallHasOneMaximum: the longest time of a call has two names.
func TestWallHasOneMaximum(t *testing.T) {
	for doc, want := range map[string][2]time.Duration{
		"tools.bash.max_timeout = '5m'":                         {5 * time.Minute, 5 * time.Minute},
		"tools.bash.max_timeout = '5m'\nlimits.max.wall = '1h'": {5 * time.Minute, time.Hour},
		"limits.max.wall = '5m'":                                {5 * time.Minute, 5 * time.Minute},
		"":                                                      {10 * time.Minute, 2 * time.Hour},
	} {
		c, err := Parse("x.toml", []byte(doc))
		if err != nil || time.Duration(c.Limits.Wall) != want[0] || c.Tools.Bash.MaxTimeout != c.Limits.Wall || time.Duration(c.Limits.Max.Wall) != want[1] {
			t.Errorf("%q: %v and %v of %v, %v", doc, c.Limits.Wall, c.Tools.Bash.MaxTimeout, c.Limits.Max.Wall, err)
		}
	}
}

func TestMaximumFromAVariable(t *testing.T) {
	overrides, _, err := FromEnv([]string{"TOOLD_LIMITS_MAX_MEMORY=8GiB", "TOOLD_LIMITS_PIDS=99"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse("x.toml", nil, overrides...)
	if err != nil || c.Limits.Max.Memory != 8<<30 || c.Limits.Memory != 2<<30 || c.Limits.Max.PIDs != 99 {
		t.Errorf("got %+v, %v", c.Limits, err)
	}
	if len(c.Notes) != 1 || !strings.HasPrefix(c.Notes[0].String(), "TOOLD_LIMITS_PIDS: limits.pids: ") {
		t.Errorf("notes %v", c.Notes)
	}
}

// TestSettingsWithoutEffect: files of earlier versions that have them are taken.
func TestSettingsWithoutEffect(t *testing.T) {
	c, err := Parse("x.toml", []byte("[tenant.a]\nuids = [7]\nweight = 3\n"))
	if err != nil || len(c.Notes) != 1 || c.Notes[0].String() != "x.toml:3: tenant.a.weight has no effect in this version: remove it" {
		t.Errorf("notes %v, %v", c.Notes, err)
	}
}
