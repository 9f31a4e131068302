package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/toold/toold/internal/plain"
)

// foreignNames are commands of other tools that people know, and what does the same
// here. A line of the form "A, or B" has two.
var foreignNames = map[string]string{
	"ps":        "toolctl session list",
	"ls":        "toolctl session list",
	"list":      "toolctl session list",
	"create":    "toolctl session create",
	"new":       "toolctl session create",
	"start":     "toolctl session create",
	"show":      "toolctl session show SESSION",
	"inspect":   "toolctl session show SESSION -o json",
	"describe":  "toolctl session show SESSION",
	"get":       "toolctl session list, or toolctl session show SESSION",
	"logs":      "toolctl session logs SESSION",
	"log":       "toolctl session logs SESSION",
	"history":   "toolctl session logs --short SESSION",
	"stop":      "toolctl session rm SESSION",
	"rm":        "toolctl session rm SESSION",
	"remove":    "toolctl session rm SESSION",
	"delete":    "toolctl session rm SESSION",
	"end":       "toolctl session rm SESSION",
	"destroy":   "toolctl session rm SESSION",
	"kill":      "toolctl session rm --force SESSION, or toolctl abort SESSION CALL",
	"abort":     "toolctl abort SESSION [CALL]",
	"attach":    "toolctl exec SESSION -- COMMAND, or toolctl session logs -f SESSION",
	"exec":      "toolctl exec SESSION -- COMMAND",
	"run":       "toolctl exec SESSION -- COMMAND, or toolctl run -- COMMAND",
	"shell":     "toolctl exec SESSION -- COMMAND",
	"ssh":       "toolctl exec SESSION -- COMMAND",
	"sh":        "toolctl exec SESSION -- COMMAND",
	"bash":      "toolctl exec SESSION -- bash -c 'LINE'",
	"copy":      "toolctl cp",
	"snapshot":  "toolctl checkpoint SESSION",
	"commit":    "toolctl checkpoint SESSION, or toolctl apply SESSION",
	"rollback":  "toolctl undo SESSION, or toolctl restore SESSION CHECKPOINT",
	"revert":    "toolctl undo SESSION, or toolctl discard SESSION PATH",
	"reset":     "toolctl discard SESSION, or toolctl restore SESSION CHECKPOINT",
	"patch":     "toolctl diff SESSION",
	"changes":   "toolctl diff SESSION --stat",
	"clone":     "toolctl fork SESSION",
	"branch":    "toolctl fork SESSION",
	"stats":     "toolctl top",
	"info":      "toolctl status, or toolctl doctor",
	"health":    "toolctl ready",
	"check":     "toolctl doctor, or toolctl config check",
	"prune":     "toolctl gc",
	"system":    "toolctl gc, or toolctl usage",
	"images":    "toolctl image list",
	"pull":      "toolctl image pull NAME",
	"load":      "toolctl image import FILE",
	"import":    "toolctl image import FILE",
	"rmi":       "toolctl image rm NAME",
	"container": "toolctl session",
	"approve":   "toolctl approvals answer ID once, or toolctl approvals watch",
	"allow":     "toolctl approvals answer ID once, or toolctl approvals watch",
	"deny":      "toolctl approvals answer ID reject, or toolctl approvals watch",
	"reject":    "toolctl approvals answer ID reject, or toolctl approvals watch",
	"explain":   "toolctl policy explain TOOL INPUT",
	"watch":     "toolctl events --follow, or toolctl approvals watch",

	"approvals revoke": "toolctl approvals saved rm SAVED",
	"policy check":     "toolctl config check, or toolctl policy test",
}

// noCommand is the error of a command that does not exist, with what to write instead.
func noCommand(c *cobra.Command, args []string) error {
	asked := fmt.Sprintf("no command %q", c.CommandPath()+" "+line(args[0]))
	foreign := foreignNames[args[0]]
	if c.HasParent() && c.Name() != "session" {
		foreign = foreignNames[c.Name()+" "+args[0]]
	}
	if foreign != "" {
		return fmt.Errorf("%s: write %s", asked, foreign)
	}
	names := commandNames(c)
	near := didYouMean(args[0], names)
	if near == "" && c.HasParent() {
		near = ": there are " + plain.Enumerate(names)
	}
	return fmt.Errorf("%s%s", asked, near)
}

func commandNames(c *cobra.Command) []string {
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return names
}
