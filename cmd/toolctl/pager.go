package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// page has show write to the pager of whoever looks at a terminal, and anywhere else to
// standard output. What it writes must be safe to show.
func (a *app) page(show func(w io.Writer) error) error {
	cmd := a.pager()
	if cmd == nil {
		return show(a.stdout)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start the pager: %w", err)
	}
	if a.pagers != nil {
		a.pagers.Add(1)
		defer a.pagers.Done()
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the pager %q: %w", strings.Join(cmd.Args, " "), err)
	}
	err = show(in)
	cerr := in.Close()
	werr := cmd.Wait()
	switch {
	case errors.Is(err, syscall.EPIPE): // it was quit before the end
		return nil
	case err != nil:
		return err
	case cerr != nil && !errors.Is(cerr, os.ErrClosed):
		return fmt.Errorf("write to the pager: %w", cerr)
	case werr != nil:
		return fmt.Errorf("the pager %q: %w", strings.Join(cmd.Args, " "), werr)
	}
	return nil
}

// pager is the program that $PAGER names, or less, as git starts it; nil where there is
// no terminal, or none is wanted.
func (a *app) pager() *exec.Cmd {
	out := a.stdout
	if c, ok := out.(*checkedWriter); ok {
		out = c.to
	}
	file, ok := out.(*os.File)
	if !ok || !a.outTTY {
		return nil
	}
	command := strings.TrimSpace(a.getenv("PAGER"))
	if command == "" {
		if _, err := exec.LookPath("less"); err != nil {
			return nil
		}
		command = "less"
	}
	if command == "cat" {
		return nil
	}
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.Stdout, cmd.Stderr = file, a.stderr
	cmd.Env = os.Environ()
	if a.getenv("LESS") == "" {
		cmd.Env = append(cmd.Env, "LESS=FRX")
	}
	return cmd
}
