package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

type sessionRmCommand struct {
	*app
	all, keep, force, discard bool
	last                      runCommand // what has the report
}

func newSessionRmCommand(a *app) *cobra.Command {
	s := &sessionRmCommand{app: a, last: runCommand{app: a, ci: ciReport{failed: exitFailed}}}
	c := &cobra.Command{
		Use:     "rm [SESSION...]",
		Aliases: []string{"end"},
		Short:   "End sessions",
		Long: `End sessions: running calls are stopped, all processes end, and the sandbox is
removed. The worktree stays as it is; a warning names changed files that programs
of the host run or obey on sight. The records of the calls stay readable.

Changes in a worktree of mode overlay are kept for a time, of which it tells, unless
--discard drops them; that also works for a session that is over, by its id.

--report DIR first takes down what "toolctl session report" does, of one session.`,
		Example: `  toolctl session rm review
  toolctl session rm --force ses_0123
  toolctl session rm --report /tmp/r review
  toolctl session rm --all`,
		Args: func(_ *cobra.Command, args []string) error {
			if s.all == (len(args) > 0) {
				return errors.New("name the sessions to end (toolctl session list), or --all of them")
			}
			if s.last.ci.wanted() && len(args) != 1 {
				return errors.New("--report takes one session: name it")
			}
			if s.allTenants && !s.all {
				return errors.New("-A goes with --all: it ends the sessions of all tenants")
			}
			return nil
		},
		ValidArgsFunction: always(a.sessions),
		RunE:              func(c *cobra.Command, args []string) error { return s.run(c.Context(), args) },
	}
	c.Flags().BoolVar(&s.all, "all", false, "end all sessions, for admins those of the tenant they act for")
	a.allTenantsFlag(c, "with --all: those of all tenants")
	c.Flags().BoolVar(&s.keep, "keep", false, "keep the saved outputs until their retention")
	c.Flags().BoolVar(&s.discard, "discard", false, "drop what changed in a worktree of mode overlay")
	s.last.ci.register(c)
	c.Flags().BoolVar(&s.force, "force", false, "give running calls no grace")
	return c
}

func (s *sessionRmCommand) run(ctx context.Context, refs []string) error {
	of := map[string]string{} // the tenants of sessions
	if s.all {
		sessions, err := s.changing(ctx)
		if err != nil {
			return err
		}
		for _, x := range sessions {
			refs, of[x.ID] = append(refs, x.ID), x.Tenant
		}
	}
	ended := []client.Session{}
	failed := s.forEach(refs, func(ref string) error {
		x, err := s.end(ctx, s.clientFor(of[ref]), ref)
		if err != nil {
			return fmt.Errorf("end %s: %w", ref, err)
		}
		ended = append(ended, *x)
		return nil
	})
	return cmp.Or(s.printEnded(ended), s.last.finishReport(ctx, nil, failed))
}

func (s *sessionRmCommand) end(ctx context.Context, c *client.Client, ref string) (*client.Session, error) {
	var x *client.Session
	err := s.withSession(ctx, c, ref, func(ref string) error {
		before, err := c.GetSession(ctx, ref) // to tell which notes are new
		if s.last.ci.wanted() {
			if err != nil {
				return err
			}
			if err := s.last.takeDown(ctx, c, before); err != nil {
				return err
			}
		}
		progress := s.progress("ending session " + line(ref))
		x, err = c.EndSession(ctx, ref, client.EndOptions{Force: s.force, Keep: s.keep, Discard: s.discard})
		progress.stop()
		if err != nil {
			return err
		}
		if before != nil {
			sayNew(s.app, before, x)
		}
		warnSensitive(s.app, x)
		sayKept(s.app, x)
		s.last.report.Session = x
		return nil
	})
	return x, err
}

func (s *sessionRmCommand) printEnded(ended []client.Session) error {
	if s.format != formatTable {
		return printSessions(s.app, ended, noSessions)
	}
	for _, x := range ended {
		if _, err := fmt.Fprintf(s.stdout, "%s ended\n", line(x.ID)); err != nil {
			return err
		}
	}
	return nil
}
