package remark

import (
	"slices"
	"testing"
)

// What shells print of a program that there is not, and what else is not found.
func TestNoProgram(t *testing.T) {
	t.Parallel()
	tools := []string{"bash", "apply_patch", "glob"}
	const patch, glob = "(apply_patch is a tool and no program: call it by itself, not within a command)", "(glob is a tool and no program: call it by itself, not within a command)"
	for text, want := range map[string]string{
		"bash: line 3: apply_patch: command not found\nok\n": patch, "sh: 1: applypatch: not found\r\n": patch, "apply-patch: not found": patch, "/bin/sh: glob: not found": glob,
		"": "", "bash: line 1: jq: command not found": "", "glob: no such file": "", "glob: not found in x": "", "command not found": "",
	} {
		if got := NoProgram(slices.Values(tools), "", text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
