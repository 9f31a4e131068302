package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

// Every help text fits a terminal of 80 columns, whether that says its width or not.
func TestHelpWidth(t *testing.T) {
	var each func(c *cobra.Command)
	each = func(c *cobra.Command) {
		var out bytes.Buffer
		argv := append(strings.Fields(c.CommandPath())[1:], "--help")
		a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &out, getenv: func(string) string { return "" }}
		if code := run(t.Context(), argv, a); code != 0 || out.Len() == 0 {
			t.Errorf("%q: exit %d, %s", argv, code, &out)
		}
		for l := range strings.Lines(out.String()) {
			if l = strings.TrimRight(l, "\n"); width(l) > helpWidth {
				t.Errorf("%s: %d columns: %s", c.CommandPath(), width(l), l)
			}
		}
		for _, sub := range c.Commands() {
			each(sub)
		}
	}
	each(newRootCommand(&app{}))
}

// No line of a diffstat is wider than the terminal, whatever is in it.
func TestStatWidth(t *testing.T) {
	var changes []client.Change
	for i, name := range []string{"a", strings.Repeat("long/", 60) + "name", strings.Repeat("漢", 80), "x\x1by", strings.Repeat("n", 200)} {
		for _, c := range []client.Change{
			{Status: client.ChangeModified, Added: 1, Removed: 2, Kind: "file", OldKind: "file"},
			{Status: client.ChangeModified, Added: 123456, Removed: 9876543, Kind: "file", OldKind: "file"},
			{Status: client.ChangeModified, Binary: true, OldSize: 1 << 28, Size: 1 << 30, Kind: "file", OldKind: "file"},
			{Status: client.ChangeAdded, Kind: "dir"},
			{Status: client.ChangeType, Kind: "link", OldKind: "file"},
			{Status: client.ChangeModified, Stale: true, Kind: "file", OldKind: "file"},
			{Status: client.ChangeModified, Unreadable: "the tools' user may not read it, nor anybody else who is asked", Kind: "file", OldKind: "file"},
			{Status: client.ChangeAdded, Kind: "other"},
		} {
			c.Path = fmt.Sprint(i, name)
			changes = append(changes, c)
		}
	}
	for _, wide := range []int{80, 100, 250} {
		for i := range changes {
			for _, list := range [][]client.Change{changes[i : i+1], changes[i:], changes} {
				var out bytes.Buffer
				writeStat(&out, &client.Changes{Items: list, Files: len(list)}, wide, false)
				for l := range strings.Lines(out.String()) {
					if l = strings.TrimRight(l, "\n"); width(l) > wide {
						t.Fatalf("%d columns for %d: %q", width(l), wide, l)
					}
				}
			}
		}
	}
}
