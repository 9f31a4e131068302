package main

import (
	"context"
	"fmt"
	"strings"
)

// asks reports whether there is a terminal at which a person can be asked.
func (a *app) asks() bool { return a.errTTY && a.openTerminal != nil && a.credential() == "" }

// askKey asks a question at the terminal until one of keys is pressed, and gives it; 0
// where the terminal is gone. What was typed before the question is no answer. It is
// drawn on standard error.
func (a *app) askKey(ctx context.Context, question, of string) (byte, error) {
	keys, err := a.keys()
	if err != nil {
		return 0, err
	}
	defer func() { _ = keys.Close() }()
	wide, _ := keys.size()
	fmt.Fprintf(a.stderr, "%s ", fold("toolctl: "+question, wide-1, "toolctl:   "))
	for {
		select {
		case p, ok := <-keys.pressed:
			if !ok {
				fmt.Fprintln(a.stderr)
				return 0, nil
			}
			if len(p.text) == 1 && strings.Contains(of, p.text) {
				fmt.Fprintln(a.stderr, p.text)
				return p.text[0], nil
			}
		case <-ctx.Done():
			fmt.Fprintln(a.stderr)
			return 0, context.Cause(ctx)
		}
	}
}
