package remark

import (
	"iter"
	"regexp"
	"strings"

	"github.com/toold/toold/internal/plain"
)

// unfound finds what shells print of a program that there is not.
var unfound = regexp.MustCompile(`(?m)(?:^|[ :])([\w-]+): (?:command )?not found\r?$`)

// NoProgram is what to say where a shell has not found a program that is called as one of the tools
// that can be called, of which these are the names; else "".
func NoProgram(tools iter.Seq[string], text ...string) string {
	for _, t := range text {
		if !strings.Contains(t, "not found") {
			continue
		}
		for _, m := range unfound.FindAllStringSubmatch(t, -1) {
			for name := range tools {
				if plain.Folded(name) == plain.Folded(m[1]) {
					return "(" + name + " is a tool and no program: call it by itself, not within a command)"
				}
			}
		}
	}
	return ""
}
