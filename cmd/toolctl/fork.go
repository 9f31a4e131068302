package main

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

type forkCommand struct {
	*app
	at, name, ttl           string
	labels, env, permission []string
	withToken               bool
}

func newForkCommand(a *app) *cobra.Command {
	f := &forkCommand{app: a}
	c := &cobra.Command{
		Use:   "fork SESSION [flags]",
		Short: "Make a second session that begins where one is",
		Long: `Make a second session whose files are those of the first as they are now, or were at
a checkpoint, and print its id. What neither changes is shared. It has the rules and
limits of the first; --permission may narrow them. Environment variables are not
taken over, because the daemon does not keep their values.`,
		Example: `  toolctl fork review --name second-try
  toolctl fork review --at before-tests --env TOKEN`,
		ValidArgsFunction: inOrder(a.sessions),
		RunE:              func(c *cobra.Command, args []string) error { return f.run(c.Context(), args[0]) },
	}
	fs := c.Flags()
	fs.StringVar(&f.at, "at", "", "begin at this `checkpoint` (default: as it is now)")
	fs.StringVar(&f.name, "name", "", "name of the new session")
	fs.StringArrayVar(&f.labels, "label", nil, "label `K=V` (repeatable)")
	fs.StringVar(&f.ttl, "ttl", "", "end it after this `duration`, such as 8h")
	fs.StringArrayVar(&f.env, "env", nil, "environment variable `K=V`, or K to pass this one on (repeatable)")
	fs.StringArrayVar(&f.permission, "permission", nil, "rule `PERMISSION:PATTERN:ACTION` that narrows its rules, such as 'bash:git push *:deny' (repeatable)")
	fs.BoolVar(&f.withToken, "with-token", false, "also make a token that is good for calls in this session only; it is shown once")
	_ = c.RegisterFlagCompletionFunc("at", always(a.checkpoints))
	return c
}

func (f *forkCommand) run(ctx context.Context, ref string) error {
	req, err := f.request()
	if err != nil {
		return err
	}
	c := f.client()
	progress := f.progress("forking the session")
	var made *client.Session
	err = f.withSession(ctx, c, ref, func(session string) error {
		return withCheckpoint(ctx, c, session, f.at, func(id string) (err error) {
			req.At = id
			made, err = c.Fork(ctx, session, req)
			return err
		})
	})
	progress.stop()
	if err != nil {
		return err
	}
	return f.printCreated(made)
}

func (f *forkCommand) request() (client.ForkRequest, error) {
	r := client.ForkRequest{Name: f.name, Token: f.withToken}
	var labels, env, permission, ttl error
	r.Labels, labels = parseLabels(f.labels)
	r.Env, env = parseEnv(f.env, f.getenv)
	r.Permission, permission = parseRules(f.permission)
	r.TTL, ttl = parseDurationFlag("--ttl", f.ttl)
	return r, cmp.Or(labels, env, permission, ttl)
}
