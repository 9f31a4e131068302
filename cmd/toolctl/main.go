// Command toolctl is the command line of toold: it makes sessions, runs tools in
// them, moves files and shows what happens. It is wiring around package client:
// one file per command, named by root.go alone or by its group; the rest says how
// answers are shown and which exit code a failure has, and names no command.
package main

import (
	"context"
	"os"
	"sync"

	"golang.org/x/term"
)

func main() {
	a := &app{
		stdin:  os.Stdin,
		stdout: os.Stdout,
		stderr: os.Stderr,
		getenv: os.Getenv,
		inTTY:  term.IsTerminal(int(os.Stdin.Fd())),
		outTTY: term.IsTerminal(int(os.Stdout.Fd())),
		errTTY: term.IsTerminal(int(os.Stderr.Fd())),

		columns:      func() int { return columnsOf(os.Stdout) },
		openTerminal: func() (terminal, error) { return openTTY(controllingTTY) },
		tryServer:    tryServer,
		pagers:       new(sync.WaitGroup),
	}
	ctx, stop := interruptible(context.Background(), func(code int) {
		a.pagers.Wait() // else the shell and a pager would read the same keys
		os.Exit(code)
	})
	code := run(ctx, os.Args[1:], a)
	stop()
	os.Exit(code)
}

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args []string, a *app) int {
	out := &checkedWriter{to: a.stdout}
	a.stdout = out
	root := newRootCommand(a)
	root.SetArgs(args)
	c, err := root.ExecuteContextC(ctx)
	refused := err != nil && !a.started // by cobra itself
	if err == nil {
		err = out.close()
	}
	if err == nil {
		return exitOK
	}
	if refused {
		err = usageError(err)
	}
	a.complain(err)
	if refused {
		a.say("  usage: %s", c.UseLine())
		a.say("  see \"%s --help\"", c.CommandPath())
	}
	return exitCode(err)
}
