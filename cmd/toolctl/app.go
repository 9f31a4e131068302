package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/toold/toold/client"
)

// app is what all commands share: this process's streams and environment and
// the global flags.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	// whether these are terminals
	inTTY, outTTY, errTTY bool
	// columns is the width of the terminal that is standard output; nil where there
	// is none.
	columns func() int
	// openTerminal gives the keys that are pressed; nil where there is no
	// terminal.
	openTerminal func() (terminal, error)
	// tryServer starts an agent's server once, as the agent will; nil where that is left out.
	tryServer func(ctx context.Context, argv []string) (tools int, err error)
	// pagers are those that run, nil where nobody waits for them. Until they end the
	// terminal is theirs.
	pagers *sync.WaitGroup

	// machine is what is seen of this host; nil = thisMachine.
	machine func() machine

	// private: the daemon that it talks to is its own (see reach), so that nobody else can answer it.
	private bool

	socket, tenant, token string
	allTenants            bool // -A, of the commands that have it
	format                outputFormat
	noHeaders             bool

	// again is what to do when that is done which complain says; "" where that goes without saying.
	again string

	// started is set when a command's own code begins: errors before that are
	// of the command line.
	started bool
}

// socketPath is the socket to talk to: the flag, the variable, or the default.
func (a *app) socketPath() string {
	return cmp.Or(a.socket, a.getenv("TOOLD_SOCKET"), client.DefaultSocket)
}

// socketChosen reports whether the user named a socket.
func (a *app) socketChosen() bool { return a.socket != "" || a.getenv("TOOLD_SOCKET") != "" }

// hereOf is the machine that it runs on.
func hereOf(a *app) machine {
	if a.machine != nil {
		return a.machine()
	}
	return thisMachine()
}

// client talks to the daemon that the flags and the environment name.
func (a *app) client() *client.Client { return a.clientOf(a.socketPath()) }

func (a *app) clientOf(socket string) *client.Client {
	return client.New(client.Options{
		Socket: strings.TrimPrefix(socket, "unix://"),
		Tenant: a.tenant,
		Token:  a.credential(),
	})
}

// credential is the session's token that calls are made with; "" for the user's own
// rights.
func (a *app) credential() string {
	return cmp.Or(a.token, a.getenv("TOOLD_TOKEN"))
}

// typed reports whether a person types at a terminal and sees there what comes of it.
func (a *app) typed() bool { return a.inTTY && a.outTTY && a.credential() == "" }

// flushWriter is a writer that may hold back a few bytes until the end.
type flushWriter interface {
	io.Writer
	Flush() error
}

// sandboxOut is where bytes from inside a sandbox go: made safe on a terminal,
// byte for byte otherwise, so that redirected output is exactly the command's.
func sandboxOut(w io.Writer, tty bool) flushWriter {
	if tty {
		return newScreen(w)
	}
	return rawWriter{w}
}

type rawWriter struct{ io.Writer }

func (rawWriter) Flush() error { return nil }

// outputFormat is a value of -o.
type outputFormat string

const (
	formatTable outputFormat = "table"
	formatJSON  outputFormat = "json"
	formatYAML  outputFormat = "yaml"
	formatName  outputFormat = "name"
)

var outputFormats = []string{"table", "json", "yaml", "name"}

// choice is the value of a flag that takes one of a few words.
type choice[T ~string] struct {
	to   *T
	of   []string
	kind string // of value, for help texts
}

// String implements pflag.Value.
func (c choice[T]) String() string { return string(*c.to) }

// Type implements pflag.Value.
func (c choice[T]) Type() string { return c.kind }

// Set refuses other words.
func (c choice[T]) Set(s string) error {
	if !slices.Contains(c.of, s) {
		return fmt.Errorf("must be one of %s", strings.Join(c.of, ", "))
	}
	*c.to = T(s)
	return nil
}
