// Command toold is the daemon: it runs a coding agent's tools in sandboxes, for
// clients on a Unix socket. It is wiring only; what it does is in the packages.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// What sessions must be able to read is made with modes that say so; a
	// stricter umask of whoever starts toold would take that away.
	syscall.Umask(0o022)
	tuneCollector()
	// A log whose reader has gone must not take the sessions' daemon with it.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	err := run(ctx, process{
		args: os.Args[1:], env: os.Environ(),
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, hup: hup,
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "toold: %v\n", err)
		os.Exit(exitCode(err))
	}
}

// process is what main has and run may use: run itself touches nothing global
// but the umask and what systemd hands over.
type process struct {
	args           []string
	env            []string // KEY=VALUE
	stdin          io.Reader
	stdout, stderr io.Writer
	hup            <-chan os.Signal
}

// errUsage: the command line or the configuration is wrong, nothing was done.
type errUsage struct{ error }

func (e errUsage) Unwrap() error { return e.error }

// exitConfig tells systemd that starting again is no use, as it does by sysexits.h.
// It cannot be 2: with that the Go runtime ends a process that has panicked, or that
// the watchdog aborts, and those must be started again.
const exitConfig = 78

// exitCode is exitConfig for a wrong command line or configuration, else 1.
func exitCode(err error) int {
	if errors.As(err, new(errUsage)) {
		return exitConfig
	}
	return 1
}

// run is the daemon without the process. It returns when ctx has ended and
// everything of its own has stopped, or at once on an error.
func run(ctx context.Context, p process) error {
	o, err := parseOptions(p.args, p.stderr)
	switch {
	case errors.Is(err, errHelp):
		return nil
	case err != nil:
		return errUsage{err}
	case o.version:
		fmt.Fprintln(p.stdout, "toold "+versionInfo("").Version)
		return nil
	}
	cfg, err := o.load(p.env)
	if err != nil {
		return errUsage{err}
	}
	if o.check {
		for _, n := range cfg.Notes {
			fmt.Fprintln(p.stderr, "note:", n)
		}
		for _, w := range allWarnings(cfg) {
			fmt.Fprintln(p.stderr, "warning:", w)
		}
		fmt.Fprintln(p.stdout, "the configuration is valid")
		return nil
	}
	return serve(ctx, cfg, o, p)
}
