package main

import (
	"strings"
	"testing"
)

// Each flag that a hint writes is one that a command has, so that no hint leads nowhere; and
// each usage line names what can be listed by a command that there is.
func TestForeignFlags(t *testing.T) {
	root := newRootCommand(&app{})
	for name, f := range foreignFlags {
		for _, c := range flagHolders(root) {
			if c.Flags().Lookup(name) == nil && (len(name) > 1 || c.Flags().ShorthandLookup(name) == nil) && foreignHint(c, name) == "" && f.flag != name {
				t.Errorf("%s --%s has no hint", c.CommandPath(), name)
			}
		}
	}
	for name, command := range listedBy {
		if c, _, err := root.Find(strings.Fields(command)[1:]); err != nil || !c.Runnable() {
			t.Errorf("%s: no command %s", name, command)
		}
	}
}

func TestArguments(t *testing.T) {
	for use, want := range map[string][]argument{
		"list":                nil,
		"logs SESSION [CALL]": {{"SESSION", false, false}, {"CALL", true, false}},
		"exec [flags] SESSION -- COMMAND [ARGUMENT...]":         {{"SESSION", false, false}, {"COMMAND", false, false}, {"ARGUMENT", true, true}},
		"call SESSION TOOL [JSON | TEXT | @FILE | -]":           {{"SESSION", false, false}, {"TOOL", false, false}, {"JSON | TEXT | @FILE | -", true, false}},
		"cp [-r] SESSION:PATH FILE | cp [-r] FILE SESSION:PATH": {{"SESSION:PATH", false, false}, {"FILE", false, false}},
		"rm IMAGE...": {{"IMAGE", false, true}},
	} {
		got := arguments(use)
		if len(got) != len(want) {
			t.Errorf("%s: %v", use, got)
			continue
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%s: %v", use, got)
			}
		}
	}
}
