package main

import (
	"strings"
	"testing"

	"github.com/toold/toold/internal/sensitive"
)

// What a session writes to the file of an agent that toold is configured in is run by that agent: apply
// must not write it without being told to.
func TestAgentsObey(t *testing.T) {
	t.Parallel()
	for name, c := range agentConfigs {
		file := strings.TrimPrefix(c.file, "HOME/")
		for _, at := range []string{file, "web/" + file} {
			if sensitive.Path(at) != sensitive.OnSight {
				t.Errorf("%s: %s is taken for a plain file", name, at)
			}
		}
	}
}
