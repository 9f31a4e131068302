package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

const approvalsWatchLong = `Show calls that wait for approval as they come, and answer them.

On a terminal each call is shown with its command or its diff, and one key answers:
o once, a always, r reject, m reject with a message for the model, s skip, q quit.
Long text is cut and marked; f shows the whole input. Control and invisible
characters are shown as escapes. A key that was pressed before the call was on the
screen does not answer it.

Without a terminal it prints one line for each approval that begins or ends; with
-o json one object per line.`

type approvalsWatchCommand struct {
	*app
	session, scope string
}

func newApprovalsWatchCommand(a *app) *cobra.Command {
	s := &approvalsWatchCommand{app: a}
	c := &cobra.Command{
		Use:     "watch",
		Short:   "Show approvals as they come and answer them with one key",
		Long:    approvalsWatchLong,
		Example: "  toolctl approvals watch\n  toolctl approvals watch --session review --scope tenant\n  toolctl approvals watch -o json",
		RunE:    func(c *cobra.Command, _ []string) error { return s.run(c.Context()) },
	}
	f := c.Flags()
	f.StringVar(&s.session, "session", "", "only approvals of this session")
	f.StringVar(&s.scope, "scope", string(client.ScopeSession), "how far always reaches: "+strings.Join(scopes, ", "))
	_ = c.RegisterFlagCompletionFunc("session", always(a.sessions))
	s.allTenantsFlag(c, "those of all tenants")
	_ = c.RegisterFlagCompletionFunc("scope", cobra.FixedCompletions(scopes, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (s *approvalsWatchCommand) run(ctx context.Context) error {
	if !slices.Contains(scopes, s.scope) {
		return usagef("no scope %q%s; there are %s", line(s.scope), didYouMean(s.scope, scopes), strings.Join(scopes, ", "))
	}
	return s.look(ctx, s.session, func(c *client.Client, session string) error {
		// A list says whether all tenants may be asked about, and how much is left out.
		q := client.ApprovalQuery{Session: session}
		_, err := ofTenants(s.app, func(all bool) ([]client.Approval, error) {
			pending, err := pendingApprovals(ctx, c, client.ApprovalQuery{Session: session, AllTenants: all})
			if err == nil {
				q.AllTenants = all && s.wantsAll()
			}
			return pending, err
		}, approvalTenant, "approval")
		if interruption(ctx) != nil {
			return nil
		}
		if err != nil {
			return err
		}
		f := newApprovalFeed(ctx, c, q)
		defer f.stop()
		show := s.follow
		if s.outTTY && s.format == formatTable && s.openTerminal != nil {
			show = s.interactive
		}
		if err := show(ctx, f); interruption(ctx) == nil {
			return err
		}
		return nil // Ctrl-C is how it ends
	})
}

// follow prints what comes and what ends, until ctx does.
func (s *approvalsWatchCommand) follow(ctx context.Context, f *approvalFeed) error {
	known := map[string]bool{}
	for {
		l, err := f.next(ctx)
		if err != nil {
			return err
		}
		now := map[string]bool{}
		for i := range l.pending {
			now[l.pending[i].ID] = true
			if !known[l.pending[i].ID] {
				if err := s.printAsked(&l.pending[i]); err != nil {
					return err
				}
			}
		}
		for id := range known {
			if !now[id] {
				if err := s.printEnded(id, l.ended); err != nil {
					return err
				}
			}
		}
		known = now
	}
}

func (s *approvalsWatchCommand) printAsked(a *client.Approval) error {
	asked := struct {
		Type     string           `json:"type"`
		Approval *client.Approval `json:"approval"`
	}{client.EventApprovalAsked, a}
	return s.printNext(view{data: asked, names: []string{a.ID}, text: func(w io.Writer) {
		fmt.Fprintf(w, "%s  asked  %s  %s  %s: %s\n", a.Created.Local().Format(time.TimeOnly), line(a.ID), line(a.SessionID),
			line(a.Tool), approvalShort(a))
	}})
}

func (s *approvalsWatchCommand) printEnded(id string, ended map[string]client.ApprovalReply) error {
	r, known := ended[id]
	if !known {
		r = client.ApprovalReply{ID: id, Answer: "unknown"}
	}
	end := struct {
		Type  string               `json:"type"`
		Reply client.ApprovalReply `json:"reply"`
	}{client.EventApprovalReplied, r}
	return s.printNext(view{data: end, text: func(w io.Writer) {
		fmt.Fprintf(w, "%s  ended  %s  %s\n", time.Now().Local().Format(time.TimeOnly), line(id), replyText(r))
	}})
}

// interactive shows one approval after the other and answers by key.
func (s *approvalsWatchCommand) interactive(ctx context.Context, f *approvalFeed) error {
	first, err := f.next(ctx)
	if err != nil {
		return err
	}
	keys, err := s.keys()
	if err != nil {
		return err
	}
	w := newWatch(0, 0, s.color(), client.Scope(s.scope))
	return w.run(ctx, s.stdout, keys, first, f.lists, func(do deed) (string, bool) {
		return perform(ctx, s.clientFor, w, do), do.quit
	})
}
