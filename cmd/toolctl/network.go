package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

func newNetworkCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "network",
		Short: "Show what a session reaches by network",
		Long: `Show the connections of a session whose network mode is "rules", and the rules that
would allow just them.`,
		Example: `  toolctl network log review --follow
  toolctl network learn review >> rules.toml`,
	}
	c.AddCommand(newNetworkLogCommand(a), newNetworkLearnCommand(a))
	return c
}

type networkLogCommand struct {
	*app
	follow bool
}

func newNetworkLogCommand(a *app) *cobra.Command {
	s := &networkLogCommand{app: a}
	c := &cobra.Command{
		Use:   "log SESSION",
		Short: "Show the connections of a session",
		Long: `Show the connections of a session, oldest first: when each ended, the call that opened
it, what became of it, by which rule, bytes up and down, and how long it was open. HTTP
requests that could be seen have lines of their own. A ? behind a call says that it is a
guess among those that ran.`,
		Example:           "  toolctl network log review\n  toolctl network log review --follow",
		ValidArgsFunction: inOrder(a.sessions),
		RunE:              func(c *cobra.Command, args []string) error { return s.run(c.Context(), args[0]) },
	}
	c.Flags().BoolVarP(&s.follow, "follow", "f", false, "show new connections until Ctrl-C")
	return c
}

func (s *networkLogCommand) run(ctx context.Context, ref string) error {
	return s.look(ctx, ref, func(c *client.Client, session string) error {
		shown, lines := 0, newFlow(s.app, 0, 0, 6)
		err := eachEvent(ctx, c, client.EventQuery{Session: session, Type: "network.*", Stored: !s.follow}, func(e client.Event) error {
			var r client.NetworkRecord
			if json.Unmarshal(e.Data, &r) != nil {
				r.To = "(not known to this version of toolctl)"
			}
			shown++
			return s.printNext(view{data: e, names: []string{e.ID}, text: func(w io.Writer) {
				writeConnection(w, lines, &e, &r)
			}})
		})
		if err == nil && shown == 0 && interruption(ctx) == nil {
			s.say("session %s has opened no connections", line(ref))
		}
		return err
	})
}

// writeConnection shows one record.
func writeConnection(w io.Writer, lines *flow, e *client.Event, r *client.NetworkRecord) {
	if e.Type == client.EventNetworkLost || r.To == "" && r.Error == "" { // the latter of older daemons
		lines.say(w, fmt.Sprintf("(%s came too fast to be kept)", plural(int(r.LeftOut), "connection")))
		return
	}
	by := cmp.Or(e.Call, "-")
	if e.Call != "" && !r.Exact {
		by += "?"
	}
	verdict := r.Verdict
	if r.Error != "" {
		verdict = "failed"
	}
	text := cmp.Or(r.To, "(not known)")
	if r.Verdict == "allow" && r.Error == "" {
		text += fmt.Sprintf("  up %s  down %s  %s", bytesShort(r.Up), bytesShort(r.Down), time.Duration(r.DurationMillis)*time.Millisecond)
	}
	if r.Rule != "" {
		text += "  by " + r.Rule
	}
	if why := cmp.Or(r.Error, r.Reason); why != "" {
		text += ": " + why
	}
	lines.write(w, []string{e.Time.Local().Format(time.TimeOnly + ".000"), by, verdict}, text)
	if r.LeftOut > 0 {
		lines.say(w, fmt.Sprintf("(%s before this one came too fast to be kept)", plural(int(r.LeftOut), "connection")))
	}
}

func newNetworkLearnCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "learn SESSION",
		Short: "Print the rules that would allow what a session reached",
		Long: `Print the lines of a configuration that would allow just the hosts and ports that a
session reached. A session of a daemon with [network] learn = true reaches everything that
no line is about; run a build in one, then run this. Read the lines before you use them:
they are what the programs wanted.`,
		Example:           "  toolctl network learn review\n  toolctl network learn review >> rules.toml",
		ValidArgsFunction: inOrder(a.sessions),
		RunE:              func(c *cobra.Command, args []string) error { return a.learn(c.Context(), args[0]) },
	}
}

// learned are the patterns that allow what was reached.
type learned struct {
	Allow   []string `json:"allow"`
	LeftOut int64    `json:"left_out,omitempty"`
}

func (a *app) learn(ctx context.Context, ref string) error {
	return a.look(ctx, ref, func(c *client.Client, session string) error {
		n, err := c.SessionNetwork(ctx, session)
		if err != nil {
			return err
		}
		l := learnedFrom(n)
		if n.Mode != client.NetworkRules {
			a.say("session %s has no network: make one with --net rules", line(ref))
		}
		if l.LeftOut > 0 {
			a.say("%s were not recorded: the lines may miss hosts", plural(int(l.LeftOut), "connection"))
		}
		return a.print(view{data: l, names: l.Allow, text: func(w io.Writer) { fmt.Fprint(w, l.toml(ref)) }})
	})
}

// learnedFrom gives one pattern for each host and port that was reached, sorted.
func learnedFrom(n *client.SessionNetwork) learned {
	l := learned{Allow: []string{}, LeftOut: n.LeftOut}
	for i := range n.Hosts {
		h := &n.Hosts[i]
		at := strings.LastIndexByte(h.To, ':')
		if h.Permission != "network" || h.Verdict != "allow" || at < 0 {
			continue
		}
		pattern := h.To
		if port := h.To[at+1:]; port == "80" || port == "443" {
			pattern = h.To[:at] // both, as rules have them
		}
		l.Allow = append(l.Allow, pattern)
	}
	slices.Sort(l.Allow)
	l.Allow = slices.Compact(l.Allow)
	return l
}

// toml is the section of a configuration.
func (l *learned) toml(session string) string {
	if len(l.Allow) == 0 {
		return fmt.Sprintf("# session %s reached nothing\n", line(session))
	}
	var b strings.Builder
	b.WriteString("[permission.network]\n\"*\" = \"deny\"\n")
	for _, p := range l.Allow {
		fmt.Fprintf(&b, "%q = \"allow\"\n", line(p))
	}
	return b.String()
}
