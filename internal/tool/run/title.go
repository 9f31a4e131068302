package run

import (
	"strings"

	"github.com/toold/toold/internal/plain"
)

// The titles of results. The daemon makes the same ones of calls that are running.

// BashTitle is the description of a command, or the beginning of its text.
func BashTitle(description, command string) string {
	if description != "" {
		return description
	}
	line, _, _ := strings.Cut(strings.TrimSpace(command), "\n")
	return plain.Cut(line, 120)
}

// SearchTitle is the pattern that is searched for.
func SearchTitle(pattern string) string { return plain.Name(pattern) }

// PathTitle is a canonical path, without the worktree where it is below that.
func PathTitle(worktree, canonical string) string {
	if rest, ok := strings.CutPrefix(canonical, strings.TrimSuffix(worktree, "/")+"/"); ok {
		return plain.Name(rest)
	}
	return plain.Name(canonical)
}
