package remark

import (
	"regexp"
	"slices"
	"strings"

	"github.com/toold/toold/internal/plain"
)

// unfound finds what shells print of a program that there is not.
var unfound = regexp.MustCompile(`(?m)(?:^|[ :])([\w-]+): (?:command )?not found\r?$`)

// NoProgram is what to say where a shell has not found a program that is called as one of the tools
// that can be called, of which these are the names; else "".
func NoProgram(tools []string, text ...string) string {
	for _, t := range text {
		if !strings.Contains(t, "not found") {
			continue
		}
		for _, m := range unfound.FindAllStringSubmatch(t, -1) {
			if i := slices.IndexFunc(tools, func(name string) bool { return plain.Folded(name) == plain.Folded(m[1]) }); i >= 0 {
				return "(" + tools[i] + " is a tool and no program: call it by itself, not within a command)"
			}
		}
	}
	return ""
}
