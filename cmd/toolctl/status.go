package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

// daemonStatus is what `toolctl status` prints; its JSON names are stable.
type daemonStatus struct {
	Socket   string         `json:"socket"`
	Version  client.Version `json:"version"`
	Health   client.Health  `json:"health"`
	Sessions map[string]int `json:"sessions"` // by state, of those that are not over
	tenants  map[string]int // how many of them are of each tenant
	Calls    int            `json:"calls"` // pending and running
	// More is how many sessions may begin now; nil where the daemon does not say it.
	More      *int   `json:"more_sessions,omitempty"`
	MoreBound string `json:"more_bound,omitempty"`
	// Approvals are pending.
	Approvals int `json:"approvals"`
}

func newStatusCommand(a *app) *cobra.Command {
	var watch watchFlag
	c := &cobra.Command{
		Use:   "status",
		Short: "Show whether the daemon works, and what runs now",
		Long: `Show which daemon answers, whether it takes sessions and calls, and what you have
there now: sessions, unfinished calls, pending approvals. For admins that is what all
tenants have; -o json is about one tenant without -A. Exits with 1 when the daemon
takes no work, with 6 when there is no daemon.`,
		Example: "  toolctl status\n  toolctl status -w\n  toolctl status -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			return watch.run(c.Context(), a, func(ctx context.Context) error {
				s, err := readStatus(ctx, a)
				if err != nil {
					return err
				}
				if err := a.print(view{data: s, names: []string{s.Health.Status}, text: func(w io.Writer) { statusText(a, w, s) }}); err != nil {
					return err
				}
				if s.Health.Status != "ok" {
					return exit(exitFailed)
				}
				return nil
			})
		},
	}
	watch.register(c)
	a.allTenantsFlag(c, "count what all tenants have")
	return c
}

func readStatus(ctx context.Context, a *app) (*daemonStatus, error) {
	c := a.client()
	s := &daemonStatus{Socket: c.Socket(), Sessions: map[string]int{}, tenants: map[string]int{}}
	v, err := c.Version(ctx)
	if err != nil {
		return nil, err
	}
	h, err := c.Ready(ctx)
	if err != nil {
		return nil, err
	}
	s.Version, s.Health = *v, *h
	sessions, err := a.tenantSessions(ctx, client.SessionQuery{})
	if err != nil {
		return nil, err
	}
	for i := range sessions {
		s.Sessions[string(sessions[i].State)]++
		s.tenants[sessions[i].Tenant]++
		n, err := unfinished(ctx, a.clientFor(sessions[i].Tenant), sessions[i].ID)
		if err != nil {
			return nil, err
		}
		s.Calls += len(n)
	}
	pending, err := ofTenants(a, func(all bool) ([]client.Approval, error) {
		return pendingApprovals(ctx, c, client.ApprovalQuery{AllTenants: all})
	}, approvalTenant, "approval")
	if err != nil {
		return nil, err
	}
	s.Approvals = len(pending)
	if a.credential() != "" {
		return s, nil
	}
	tenants, err := c.Usage(ctx)
	if err != nil && !refusesAll(err) && !isNotFound(err) {
		return nil, err
	}
	for i := range tenants {
		if u := &tenants[i]; u.MoreBound != "" && (len(tenants) == 1 || !a.stranger(u.Tenant)) {
			s.More, s.MoreBound = &u.MoreSessions, u.MoreBound
		}
	}
	return s, nil
}

// unfinished are the calls of a session that run or wait. A session that is gone
// meanwhile has none.
func unfinished(ctx context.Context, c *client.Client, session string) ([]client.Call, error) {
	var all []client.Call
	for _, status := range []client.CallStatus{client.CallPending, client.CallRunning} {
		calls, err := listCalls(ctx, c, session, client.CallQuery{Status: status})
		if err != nil && !isNotFound(err) {
			return nil, err
		}
		all = append(all, calls...)
	}
	return all, nil
}

// maxTenants bounds how many tenants status names; "toolctl usage" has them all.
const maxTenants = 8

func statusText(a *app, w io.Writer, s *daemonStatus) {
	t := a.pairs()
	t.row("toold", s.Health.Status)
	t.paint(1, wordColor(s.Health.Status))
	for _, r := range s.Health.Reasons {
		t.row("reason", r)
	}
	for _, r := range s.Health.Warnings {
		t.row("warning", r)
	}
	t.row("version", describeVersion(s.Version))
	t.row("socket", s.Socket)
	var states []string
	for _, state := range []client.SessionState{client.SessionCreating, client.SessionReady, client.SessionEnding} {
		if n := s.Sessions[string(state)]; n > 0 {
			states = append(states, fmt.Sprintf("%d %s", n, state))
		}
	}
	t.row("sessions", cmp.Or(strings.Join(states, ", "), "none"))
	if len(s.tenants) > 1 || len(s.tenants) == 1 && s.tenants[a.own()] == 0 {
		var of []string
		for _, name := range slices.Sorted(maps.Keys(s.tenants)) {
			of = append(of, fmt.Sprintf("%d of %s", s.tenants[name], name))
		}
		t.row("tenants", firstFew(of, maxTenants))
	}
	if s.More != nil {
		t.row("room", fmt.Sprintf("%s more (%s)", plural(*s.More, "session"), s.MoreBound))
	}
	t.row("calls", fmt.Sprintf("%d running or waiting", s.Calls))
	t.row("approvals", fmt.Sprintf("%d pending", s.Approvals))
	t.write(w)
}

func newReadyCommand(a *app) *cobra.Command {
	var wait string
	c := &cobra.Command{
		Use:   "ready",
		Short: "Tell by the exit code whether the daemon takes work",
		Long: `Exit with 0 when the daemon takes sessions and calls, with 1 and the reasons when
it does not, with 6 when there is no daemon. With --wait, wait so long for it.`,
		Example: "  toolctl ready\n  toolctl ready --wait 30s && toolctl session create",
		RunE: func(c *cobra.Command, _ []string) error {
			if wait == "" {
				h, err := a.client().Ready(c.Context())
				return readiness(a, h, err)
			}
			d, err := parseDurationFlag("--wait", wait)
			if err != nil {
				return err
			}
			return awaitReady(c.Context(), a, time.Duration(d))
		},
	}
	c.Flags().StringVar(&wait, "wait", "", "how long to wait for it, a `duration` such as 30s")
	return c
}

func awaitReady(ctx context.Context, a *app, most time.Duration) error {
	within, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	progress := a.progress("waiting for the daemon")
	defer progress.stop()
	c := a.client()
	for {
		h, err := c.Ready(ctx)
		if err == nil && h.Status == "ok" || err != nil && !isUnreachable(err) {
			return readiness(a, h, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-within.Done():
			return readiness(a, h, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// readiness is how toolctl exits after a look at what the daemon says of itself.
func readiness(a *app, h *client.Health, err error) error {
	if err != nil {
		return err
	}
	err = a.print(view{data: h, names: []string{h.Status}, text: func(w io.Writer) { fmt.Fprintln(w, line(h.Status)) }})
	if err != nil {
		return err
	}
	for _, r := range h.Warnings {
		a.say("%s", line(r))
	}
	if h.Status == "ok" {
		return nil
	}
	for _, r := range h.Reasons {
		a.say("%s", line(r))
	}
	if h.Status == "starting" {
		a.say("  toolctl ready --wait 1m waits for that")
	}
	return exit(exitFailed)
}

func newReloadCommand(a *app) *cobra.Command {
	dryRun := false
	c := &cobra.Command{
		Use:   "reload",
		Short: "Make the daemon read its configuration again",
		Long: `Make the daemon read its configuration again. If it has errors, all of them are
shown and the daemon keeps the old one. Rules that may not do what they are meant to
are shown as warnings, and so is what waits for a restart. For admins.

With --dry-run the daemon looks at the file, with its variables and flags over it, and
changes nothing.`,
		Example: "  toolctl reload --dry-run && toolctl reload",
		RunE: func(c *cobra.Command, _ []string) error {
			v, err := a.client().Reload(c.Context(), dryRun)
			if err != nil {
				return err
			}
			for _, w := range v.Warnings {
				fmt.Fprintln(a.stderr, "warning: "+lines(w))
			}
			return a.print(view{data: v, text: func(w io.Writer) {
				done := "the configuration was read again"
				if dryRun {
					done = "the configuration is valid; the daemon keeps the old one"
				}
				if n := len(v.Warnings); n > 0 {
					done += ", with " + plural(n, "warning")
				}
				fmt.Fprintln(w, done)
				if len(v.AtStart) > 0 {
					fmt.Fprintf(w, "the next start of toold takes over: %s\n", line(strings.Join(v.AtStart, ", ")))
				}
			}})
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "look at the configuration, and keep the old one")
	return c
}
