package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toold/toold/client"
)

const execLong = `Run one command in a session, as a call of bash.

The command's words reach the sandbox exactly as they are given here; for a
shell line, run a shell: -- bash -c 'a | b'. Flags of toolctl go before the --.
With -i the command reads the standard input of toolctl; without -i it has no
input, and toolctl exits with 125 if there was some. Its output is shown while it
runs. It has no terminal: use what programs have for scripts, not vim or top.

toolctl exits with the command's code: 124 after a timeout, 125 when toold itself
failed, 126 when the command was denied, 128+n when signal n ended it. Ctrl-C
stops the command; the session stays.`

const execExample = `  toolctl exec review -- go test ./...
  toolctl exec review -- bash -c 'grep -r TODO . | wc -l'
  echo 'make test' | toolctl exec -i review -- bash
  toolctl exec --workdir cmd/app --env CGO_ENABLED=0 review -- go build`

type execCommand struct {
	*app
	pass    bool // standard input
	env     []string
	command bashFlags
	argv    []string
}

func newExecCommand(a *app) *cobra.Command {
	x := &execCommand{app: a}
	c := &cobra.Command{
		Use:     "exec [flags] SESSION -- COMMAND [ARGUMENT...]",
		Short:   "Run one command in a session",
		Long:    execLong,
		Example: execExample,
		Args: func(c *cobra.Command, args []string) (err error) {
			x.argv, err = execArgv(c, args)
			return err
		},
		ValidArgsFunction: inOrder(a.sessions),
		RunE: func(c *cobra.Command, args []string) error {
			return x.run(c.Context(), args[0], x.argv)
		},
	}
	c.Flags().SetInterspersed(false) // everything after the session is the command's
	x.command.register(c)
	c.Flags().BoolVarP(&x.pass, "stdin", "i", false, "give standard input to the command: text, up to 1 MiB")
	c.Flags().StringArrayVar(&x.env, "env", nil, "environment variable `K=V`, or K to pass this one on (repeatable)")
	return c
}

// execArgv gives the words of the command that follow the session, and takes the flags that
// are between the two.
func execArgv(c *cobra.Command, args []string) ([]string, error) {
	if len(args) == 0 {
		return nil, errors.New("no SESSION (\"toolctl session list\" lists them) and no command, as in \"toolctl exec review -- ls -l\"")
	}
	rest := args[1:]
	switch {
	case len(rest) > 0 && rest[0] == "--":
		rest = rest[1:]
	case len(rest) > 0 && strings.HasPrefix(rest[0], "-"):
		if err := c.Flags().Parse(rest); err != nil {
			return nil, flagError(c, err)
		}
		if help := c.Flag("help"); help != nil && help.Changed {
			return nil, pflag.ErrHelp
		}
		rest = c.Flags().Args()
	}
	if len(rest) == 0 {
		return nil, errors.New("no command: write it after --, as in \"toolctl exec review -- ls -l\"")
	}
	return rest, nil
}

func (x *execCommand) run(ctx context.Context, ref string, argv []string) error {
	call, err := x.command.call(x.app, argv)
	if err != nil {
		return err
	}
	if _, err := sessionRef(ref); err != nil {
		return err
	}
	if call.Env, err = parseEnv(x.env, x.getenv); err != nil {
		return err
	}
	if call.Input, err = x.given(ctx, x.pass, call.Input); err != nil {
		return commandFailure(err)
	}
	c := x.client()
	if x.credential() == "" { // a token may make calls and see no session
		s, err := x.session(ctx, c, ref)
		if err != nil {
			return commandFailure(err)
		}
		ref = s.ID
		tellNotes(x.app, s, false)
		if call.TimeoutMillis == 0 {
			call.TimeoutMillis = longestCall(s).Milliseconds() // not the default of a call by an agent, which is short
		}
	}
	return commandFailure(x.withSession(ctx, c, ref, func(ref string) error { return x.follow(ctx, c, ref, call) }))
}

func (x *execCommand) follow(ctx context.Context, c *client.Client, session string, call client.CallCreate) error {
	f := x.outputs(c)
	k := &asker{app: x.app, client: c, giveUp: "Ctrl-C aborts the call"}
	defer k.stop()
	f.approval = k.event
	final, err := f.run(ctx, session, call)
	if err != nil {
		return err
	}
	sayRemarks(x.app, final)
	return x.notGiven(ctx, x.pass, commandResult(ctx, final))
}
