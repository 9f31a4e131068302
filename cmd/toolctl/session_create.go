package main

import (
	"cmp"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

type sessionCreateCommand struct {
	*app
	session          sessionFlags
	name             string
	labels           []string
	ttl, idleTimeout string
	leasePID         int
	withToken        bool
}

func newSessionCreateCommand(a *app) *cobra.Command {
	s := &sessionCreateCommand{app: a}
	c := &cobra.Command{
		Use:   "create [flags]",
		Short: "Create a session",
		Long: `Create a session and print its id. It lives until it is removed, its time to live
is over, it is idle for too long, or the process of --lease-pid ends.`,
		Example: `  toolctl session create --worktree . --name review --label job=42
  id=$(toolctl session create -o name)
  toolctl session create --ttl 1h --limit memory=1GiB --limit cpus=1.5
  toolctl session create --with-token -o json   # for handing to an agent`,
		RunE: func(c *cobra.Command, _ []string) error { return s.run(c) },
	}
	s.session.register(a, c)
	f := c.Flags()
	f.StringVar(&s.name, "name", "", "name of the session")
	f.StringArrayVar(&s.labels, "label", nil, "label `K=V` (repeatable)")
	f.StringVar(&s.ttl, "ttl", "", "end it after this `duration`, such as 8h")
	f.StringVar(&s.idleTimeout, "idle-timeout", "", "end it after this `duration` without a call; negative for never (default 1h)")
	f.IntVar(&s.leasePID, "lease-pid", 0, "end it when this process does")
	f.BoolVar(&s.withToken, "with-token", false, "also make a token that is good for calls in this session only; it is shown once")
	return c
}

func (s *sessionCreateCommand) run(c *cobra.Command) error {
	req, err := s.request()
	if err != nil {
		return err
	}
	created, err := s.session.create(c.Context(), s.app, s.client(), req, true)
	if err != nil {
		return err
	}
	tellNotes(s.app, created, false)
	return s.printCreated(created)
}

// printCreated shows what others need to know of a new session: its id, and the token that
// was asked for.
func (a *app) printCreated(s *client.Session) error {
	return a.print(view{data: s, names: []string{s.ID}, text: func(w io.Writer) {
		fmt.Fprintln(w, line(s.ID))
		if s.Token != "" {
			fmt.Fprintln(w, line(s.Token))
		}
	}})
}

func (s *sessionCreateCommand) request() (client.SessionCreate, error) {
	req, err := s.session.request(s.app, false)
	if err != nil {
		return req, err
	}
	var labels, ttl, idle error
	req.Labels, labels = parseLabels(s.labels)
	req.TTL, ttl = parseDurationFlag("--ttl", s.ttl)
	req.IdleTimeout, idle = parseDurationFlag("--idle-timeout", s.idleTimeout)
	req.Name, req.LeasePID, req.Token = s.name, s.leasePID, s.withToken
	return req, cmp.Or(labels, ttl, idle)
}
