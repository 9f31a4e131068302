package main

import (
	"cmp"
	"context"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

type sessionSetCommand struct {
	*app
	ttl     string
	labels  []string
	profile string
}

func newSessionSetCommand(a *app) *cobra.Command {
	s := &sessionSetCommand{app: a}
	c := &cobra.Command{
		Use:   "set SESSION",
		Short: "Change how long a session lives, its labels or its profile",
		Long: `Change a live session: how long it lives from now on, its labels, or the profile by
whose rules its later calls are judged.`,
		Example: `  toolctl session set review --ttl 2h
  toolctl session set review --label job=42 --label draft=`,
		ValidArgsFunction: inOrder(a.sessions),
		RunE:              func(c *cobra.Command, args []string) error { return s.run(c.Context(), c, args[0]) },
	}
	c.Flags().StringVar(&s.ttl, "ttl", "", "end it this `duration` from now, such as 2h; 0 for never")
	c.Flags().StringArrayVar(&s.labels, "label", nil, "label `K=V`; K= removes it (repeatable)")
	c.Flags().StringVar(&s.profile, "profile", "", "the profile of later calls")
	return c
}

func (s *sessionSetCommand) run(ctx context.Context, c *cobra.Command, ref string) error {
	if !slices.ContainsFunc([]string{"ttl", "label", "profile"}, c.Flags().Changed) {
		return usagef("nothing is to change: give --ttl, --label or --profile")
	}
	labels, err := parseLabels(s.labels)
	patch := client.SessionPatch{Labels: labels}
	ttl, terr := parseDurationFlag("--ttl", s.ttl)
	if err := cmp.Or(err, terr); err != nil {
		return err
	}
	if c.Flags().Changed("ttl") {
		patch.TTL = &ttl
	}
	if c.Flags().Changed("profile") {
		patch.Profile = &s.profile
	}
	cl := s.client()
	return s.withSession(ctx, cl, ref, func(ref string) error {
		now, err := cl.PatchSession(ctx, ref, patch)
		if err != nil {
			return err
		}
		return s.print(view{data: now, names: []string{now.ID}, text: func(w io.Writer) { sessionText(s.app, w, now) }})
	})
}
