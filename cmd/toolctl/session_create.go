package main

import (
	"cmp"
	"context"
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
	created, err := createSession(c.Context(), s.app, s.client(), req)
	if err != nil {
		return err
	}
	s.sayNotes(c.Context(), created)
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

// notesOfBefore is how many earlier sessions are asked whether they had a note.
const notesOfBefore = 100

// noteWidth is how wide a note is at most: as much as fits on one line of a terminal.
const noteWidth = 90

// sayNotes prints what the host could not give, once: not what earlier sessions had
// said already. All of it stays with the session.
func (s *sessionCreateCommand) sayNotes(ctx context.Context, created *client.Session) {
	if len(created.Notes) == 0 {
		return
	}
	told := make(map[string]bool)
	// Where they cannot be listed, a note is said once more.
	if list, err := s.client().ListSessions(ctx, client.SessionQuery{All: true, Limit: notesOfBefore}); err == nil {
		for _, other := range list.Items {
			for _, note := range other.Notes {
				told[note] = told[note] || other.ID != created.ID
			}
		}
	}
	said := 0
	for _, note := range created.Notes {
		if !told[note] {
			s.say("note: %s", clipped(line(note), noteWidth))
			said++
		}
	}
	if said > 0 {
		s.say("  said once; toolctl session show %s has it in full", line(created.ID))
	}
}

func (s *sessionCreateCommand) request() (client.SessionCreate, error) {
	req, err := s.session.request(s.getenv)
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
