package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/toold/toold/client"
)

// maxSensitiveLines bounds the files that a warning names.
const maxSensitiveLines = 20

// warnSensitive says, of a session that is over, which files it changed that
// programs of the host run or obey on sight.
func warnSensitive(a *app, s *client.Session) {
	c := s.Worktree.Sensitive
	if c == nil || s.Worktree.Mode == client.WorktreeOverlay { // nothing of that is in the source
		return
	}
	if text := sensitiveText(c); text != "" {
		a.say("session %s changed files that programs of the host run or obey on sight:\n%s\n"+
			"look at them before git, an editor, direnv or CI works in %s; in a session it is safe:\n  toolctl run --worktree %s --mode ro -- cat FILE",
			line(s.ID), text, line(s.Worktree.Source), line(shellQuote([]string{s.Worktree.Source})))
	}
	if len(c.Build) > 0 {
		a.say("session %s changed build files, whose commands run when you build: %s", line(s.ID), line(firstFew(c.Build, 5)))
	}
	if c.Unchecked != "" {
		a.say("session %s: not everything could be checked for files that programs of the host run on sight (%s): "+
			"treat %s as if such files had changed", line(s.ID), line(c.Unchecked), line(s.Worktree.Source))
	}
}

// sayKept says, of a session that is over, that it has changes, and what to do with them.
func sayKept(a *app, s *client.Session) {
	if until := s.Worktree.KeptUntil; until != nil {
		a.say("session %s keeps its changes, beside %s, until %s:\n  toolctl diff|apply|discard %s",
			line(s.ID), line(s.Worktree.Source), timeText(until), line(s.ID))
	}
}

// sensitiveText lists changed files, one a line; "" for none.
func sensitiveText(c *client.SensitiveChanges) string {
	if len(c.Changed) == 0 {
		return ""
	}
	var out []string
	shown := c.Changed[:min(len(c.Changed), maxSensitiveLines)]
	for _, f := range shown {
		out = append(out, "  "+line(f))
	}
	if more := len(c.Changed) - len(shown) + c.More; more > 0 {
		out = append(out, fmt.Sprintf("  … and %d more; toolctl session show names up to %d", more, len(c.Changed)))
	}
	return strings.Join(out, "\n")
}

// firstFew names the first of a list, and counts the others.
func firstFew(names []string, few int) string {
	text := strings.Join(names[:min(len(names), few)], ", ")
	if more := len(names) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func worktreeShort(w client.Worktree) string {
	if w.Source == "" {
		return string(w.Mode)
	}
	return w.Source + " (" + string(w.Mode) + ")"
}

// formatLabels writes labels as K=V in the order of their keys.
func formatLabels(labels map[string]string) string {
	var pairs []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, k+"="+labels[k])
	}
	return strings.Join(pairs, ",")
}

// sayNew prints the notes that a session got by its end: what of its worktree did not
// come back, for one.
func sayNew(a *app, before, after *client.Session) {
	for _, note := range after.Notes {
		if !slices.Contains(before.Notes, note) {
			a.say("session %s: %s", line(after.ID), lines(note))
		}
	}
}
