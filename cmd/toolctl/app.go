package main

import (
	"io"
	"strings"

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

	socket, tenant, token string
	format                outputFormat
	noHeaders             bool

	// started is set when a command's own code begins: errors before that are
	// of the command line.
	started bool
}

// socketPath is the socket to talk to: the flag, the variable, or the default.
func (a *app) socketPath() string {
	if a.socket != "" {
		return a.socket
	}
	if s := a.getenv("TOOLD_SOCKET"); s != "" {
		return s
	}
	return client.DefaultSocket
}

// socketChosen reports whether the user named a socket.
func (a *app) socketChosen() bool { return a.socket != "" || a.getenv("TOOLD_SOCKET") != "" }

// client talks to the daemon that the flags and the environment name.
func (a *app) client() *client.Client { return a.clientOf(a.socketPath()) }

func (a *app) clientOf(socket string) *client.Client {
	return client.New(client.Options{
		Socket: strings.TrimPrefix(socket, "unix://"),
		Tenant: a.tenant,
		Token:  a.credential(),
	})
}

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
