package main

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// listedBy is what lists the things that a word of a usage line stands for.
var listedBy = map[string]string{
	"SESSION":    "toolctl session list",
	"CALL":       "toolctl session logs SESSION --short",
	"CHECKPOINT": "toolctl checkpoint ls SESSION",
	"CACHE":      "toolctl cache ls",
	"IMAGE":      "toolctl image list",
	"APPROVAL":   "toolctl approvals",
	"SAVED":      "toolctl approvals saved",
	"TOOL":       "toolctl tools",
}

// usageWord is a word of a usage line: a name, one of several, with brackets around what may
// be left out, and with dots where there may be more.
var usageWord = regexp.MustCompile(`\[[^\]]*\]\S*|\S+`)

// argument is a word behind the name of a command.
type argument struct {
	name     string
	optional bool
	many     bool
}

// arguments reads a usage line. What it says of several forms is read off the first.
func arguments(use string) (all []argument) {
	for _, w := range usageWord.FindAllString(use, -1)[1:] {
		bare, optional := strings.CutPrefix(w, "[")
		if w == "|" {
			break
		}
		if w == "--" || w == "[flags]" || optional && strings.HasPrefix(bare, "-") {
			continue
		}
		all = append(all, argument{strings.TrimRight(bare, ".]"), optional, strings.Contains(w, "...")})
	}
	return all
}

// checkArguments compares the number of arguments with a command's usage line, in place of
// cobra's counts: it says which one is missing and what lists them.
func checkArguments(c *cobra.Command, args []string) error {
	all := arguments(c.Use)
	for i, a := range all {
		switch {
		case i < len(args) && a.many, i >= len(args) && a.optional:
			return nil
		case i >= len(args):
			return missingArgument(c, a.name)
		}
	}
	if len(args) > len(all) {
		return fmt.Errorf("%q is one argument too many", line(args[len(all)]))
	}
	return nil
}

func missingArgument(c *cobra.Command, name string) error {
	how := listedBy[name]
	switch words := strings.Split(name, "|"); {
	case how != "" && c.CommandPath()+" "+name != how:
		return fmt.Errorf("no %s: %q lists them", name, how)
	case len(words) > 1 && strings.ToLower(name) == name:
		return fmt.Errorf("one word is missing: write one of %s", strings.Join(words, ", "))
	}
	example, _, _ := strings.Cut(cmp.Or(strings.TrimSpace(c.Example), c.UseLine()), "\n")
	return fmt.Errorf("no %s, as in %q", name, example)
}
