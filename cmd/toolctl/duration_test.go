package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// durationFlags are all flags that take a duration, each with a command line where
// FLAG stands for it. zero: 0 means something there.
var durationFlags = map[string]struct {
	line string
	zero bool
}{
	"toolctl approvals answer --expires":    {"approvals answer apr_1 always FLAG", false},
	"toolctl audit export --since":          {"audit export /nonexistent FLAG", true},
	"toolctl call --timeout":                {"call s bash FLAG", false},
	"toolctl call --wait":                   {"call s bash FLAG", true},
	"toolctl drain --timeout":               {"drain FLAG", true},
	"toolctl exec --timeout":                {"exec FLAG s -- true", false},
	"toolctl fork --ttl":                    {"fork FLAG s", true},
	"toolctl mcp --patience":                {"mcp --doctor codex FLAG", false},
	"toolctl mcp --queue":                   {"mcp FLAG", true},
	"toolctl mcp --wait":                    {"mcp FLAG", true},
	"toolctl policy replay --since":         {"policy replay /dev/null FLAG", true},
	"toolctl ready --wait":                  {"ready FLAG", true},
	"toolctl run --queue":                   {"run FLAG -- true", true},
	"toolctl run --timeout":                 {"run FLAG -- true", false},
	"toolctl session create --idle-timeout": {"session create FLAG", true},
	"toolctl session create --queue":        {"session create FLAG", true},
	"toolctl session create --ttl":          {"session create FLAG", true},
	"toolctl session logs --since":          {"session logs s FLAG", true},
	"toolctl session set --ttl":             {"session set s FLAG", true},
	"toolctl top --interval":                {"top FLAG", false},
	"toolctl wait --timeout":                {"wait s FLAG", false},
}

// TestDurationFlags: no flag takes a number without its unit, which is 5 ms to one
// person and 5 s to another.
func TestDurationFlags(t *testing.T) {
	var found, known []string
	collect(newRootCommand(&app{}), &found)
	for name := range durationFlags {
		known = append(known, name)
	}
	slices.Sort(known)
	if !slices.Equal(found, known) {
		t.Fatalf("the flags that take a duration are\n%s\nand these are tried:\n%s", strings.Join(found, "\n"), strings.Join(known, "\n"))
	}
	d := startFake(t, nil)
	for name, tt := range durationFlags {
		flag := name[strings.LastIndexByte(name, ' ')+1:]
		for _, n := range []string{"5", "1.5", "-5"} {
			d.ctl(strings.Fields(strings.Replace(tt.line, "FLAG", flag+"="+n, 1))...).want(t, exitUsage, "", n+" what? write "+n+"s")
		}
		if r := d.ctl(strings.Fields(strings.Replace(tt.line, "FLAG", flag+"=0", 1))...); (r.code == exitUsage) == tt.zero {
			t.Errorf("%s=0: exit %d: %s", name, r.code, r.stderr)
		}
	}
	for _, line := range []string{"session create --limit wall=5", "run --limit wall=5 -- true"} {
		d.ctl(strings.Fields(line)...).want(t, exitUsage, "", "5 what? write 5s")
	}
}

// collect finds the flags of a command and of those below it, in order.
func collect(c *cobra.Command, found *[]string) {
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if kind, _ := pflag.UnquoteUsage(f); kind == "duration" {
			*found = append(*found, c.CommandPath()+" --"+f.Name)
		}
	})
	for _, sub := range c.Commands() {
		collect(sub, found)
	}
	slices.Sort(*found)
}
