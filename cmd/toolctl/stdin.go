package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/descriptor"
	"github.com/toold/toold/internal/tool"
)

// readStdin reads what -i gives to a command.
func (a *app) readStdin(ctx context.Context) (string, error) {
	type answer struct {
		b   []byte
		err error
	}
	// Nothing ends a read of a pipe to which nobody writes. Where ctx ends, the
	// process does too.
	read := make(chan answer, 1)
	go func() {
		b, err := io.ReadAll(io.LimitReader(a.stdin, tool.MaxStdin+1))
		read <- answer{b, err}
	}()
	var got answer
	select {
	case got = <-read:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	switch {
	case got.err != nil:
		return "", fmt.Errorf("read standard input: %w", got.err)
	case len(got.b) > tool.MaxStdin:
		return "", fmt.Errorf("standard input has more than %d bytes, the most that -i passes on: put it into a file of the worktree (or toolctl cp - SESSION:FILE), and have the command read that", tool.MaxStdin)
	case !utf8.Valid(got.b):
		return "", errors.New("standard input is not text in UTF-8, and -i passes on nothing else: put it into a file of the worktree (or toolctl cp - SESSION:FILE), and have the command read that")
	}
	return string(got.b), nil
}

// withStdin adds to an input of bash what the command is to read.
func withStdin(input json.RawMessage, text string) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(input, &fields); err != nil || fields == nil {
		return nil, usagef("-i is for an input that is a JSON object, such as '{\"command\": \"cat\"}'")
	}
	if _, twice := fields["stdin"]; twice {
		return nil, usagef("the input has a stdin of its own: leave it or -i out")
	}
	if text == "" {
		return input, nil
	}
	b, err := json.Marshal(text)
	if err != nil {
		return nil, err
	}
	fields["stdin"] = b
	return json.Marshal(fields)
}

// errUnread ends a command that stands for one in a sandbox: its caller gave it input
// and it got none.
func errUnread(what string) error {
	return &exitError{exitRunFailed, errors.New("there is standard input, which " + what + ": pass it on with -i, or leave it out with </dev/null")}
}

// unread reports whether there is input that nobody has read. It does not wait for
// any: an open pipe into which nothing has been written, as CI gives to its jobs, is
// no input, and neither is a terminal.
func unread(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	waits, _ := descriptor.Use(f, func(fd int) (bool, error) { return unreadFrom(fd), nil })
	return waits
}

func unreadFrom(fd int) bool {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return false
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		at, err := unix.Seek(fd, 0, io.SeekCurrent)
		return err == nil && at < st.Size
	case unix.S_IFIFO, unix.S_IFSOCK:
		n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
		return err == nil && n > 0
	}
	return false
}

// given adds standard input to an input of bash, where it is to be passed on; else
// there must be none.
func (a *app) given(ctx context.Context, pass bool, input json.RawMessage) (json.RawMessage, error) {
	if !pass {
		if unread(a.stdin) {
			return nil, errUnread("the command would not get; nothing was run")
		}
		return input, nil
	}
	text, err := a.readStdin(ctx)
	if err != nil {
		return nil, err
	}
	return withStdin(input, text)
}

// notGiven is the end of a command: err, unless input has come that it did not get.
func (a *app) notGiven(ctx context.Context, pass bool, err error) error {
	if pass || interruption(ctx) != nil || !unread(a.stdin) {
		return err
	}
	if err != nil {
		a.complain(err)
	}
	return errUnread("the command did not get")
}
