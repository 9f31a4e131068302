package remark

import (
	"regexp"
	"slices"
)

// wantsTerminal finds what programs print that found no terminal.
var wantsTerminal = regexp.MustCompile(`(?i)not a (tty|terminal)\b|(stty|tcgetattr|tcsetattr)\b.*inappropriate ioctl|TERM environment variable (not|needs) (set|be set)|` +
	`no tty present|unable to open (/dev/)?tty|(cannot|can't|could not) open (terminal|(a )?tty|/dev/tty)|/dev/tty: no such device|error opening terminal|` +
	`terminal is not fully functional|must be (run|started) (from|in|on) a (terminal|tty)|stdin is not a (tty|terminal)|failed to get tty`)

// terminalHint is the line under a failed result that speaks of a terminal.
const terminalHint = "no terminal in this session: use what the program has for scripts (a flag such as --batch, --yes or --no-pager; cat for a pager; edit or sed for an editor)"

// NoTerminal is what to say where text, what a failed program has printed, may be about the terminal
// that sessions do not have; else "".
func NoTerminal(text ...string) string {
	if slices.ContainsFunc(text, wantsTerminal.MatchString) {
		return terminalHint
	}
	return ""
}
