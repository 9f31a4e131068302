package main

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

type eventsCommand struct {
	*app
	session, kind, after string
	follow               bool
	tenants              bool  // there is another tenant than one's own, and a column for it
	lines                *flow // nil before the first
}

func newEventsCommand(a *app) *cobra.Command {
	s := &eventsCommand{app: a}
	c := &cobra.Command{
		Use:   "events",
		Short: "Show what happens in the daemon",
		Long: `Show events: sessions that begin and end, calls, approvals, edited files. Without
--follow it shows the stored events and exits; with it, new events (or those after
--after) until Ctrl-C. It goes on when the daemon restarts. Admins see those of all
tenants; -o json has one tenant's without -A.`,
		Example: `  toolctl events
  toolctl events --follow --session review
  toolctl events --follow --type 'call.*' -o json`,
		RunE: func(c *cobra.Command, _ []string) error { return s.run(c.Context()) },
	}
	f := c.Flags()
	f.BoolVarP(&s.follow, "follow", "f", false, "show new events until Ctrl-C")
	f.StringVar(&s.session, "session", "", "only events of this session")
	f.StringVar(&s.kind, "type", "", "only this type, or a prefix with * (call.*)")
	f.StringVar(&s.after, "after", "", "begin after the event with this id")
	s.allTenantsFlag(c, "those of all tenants")
	_ = c.RegisterFlagCompletionFunc("session", always(a.sessions))
	_ = c.RegisterFlagCompletionFunc("type", cobra.FixedCompletions([]string{
		client.EventSessionCreated, client.EventSessionUpdated, client.EventSessionEnded, client.EventSessionLost,
		client.EventCallPending, client.EventCallRunning, client.EventCallMetadata, client.EventCallCompleted,
		client.EventCallError, client.EventFileEdited, client.EventApprovalAsked, client.EventApprovalReplied,
		client.EventNetworkAllowed, client.EventNetworkDenied, client.EventNetworkAsked, client.EventNetworkLost,
		"session.*", "call.*", "approval.*", "network.*",
	}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (s *eventsCommand) run(ctx context.Context) error {
	if err := s.checkTenants(); err != nil {
		return err
	}
	return s.look(ctx, s.session, func(c *client.Client, session string) error {
		q := client.EventQuery{Session: session, Type: s.kind, After: s.after, Stored: !s.follow, AllTenants: true}
		if s.wantsAll() && s.format == formatTable {
			usage, err := c.Usage(ctx) // admins alone get it
			s.tenants = err == nil && slices.ContainsFunc(usage, func(u client.TenantUsage) bool { return s.stranger(u.Tenant) })
		}
		others, shown := 0, 0
		show := func(e client.Event) error {
			shown++
			return s.show(e)
		}
		err := eachEvent(ctx, c, q, func(e client.Event) error {
			if !s.wantsAll() && s.stranger(e.Tenant) {
				others++
				return nil
			}
			return show(e)
		})
		if refusesAll(err) && !s.allTenants {
			q.AllTenants = false
			err = eachEvent(ctx, c, q, show)
		}
		s.sayOthers(others, "event")
		if err == nil && shown+others == 0 && !s.follow {
			s.say("no events are stored that are like that; toolctl events --follow waits for new ones")
		}
		return err
	})
}

// eachEvent shows events until there are no more, or Ctrl-C, which is how --follow ends.
func eachEvent(ctx context.Context, c *client.Client, q client.EventQuery, show func(e client.Event) error) error {
	for e, err := range c.Events(ctx, q) {
		switch {
		case interruption(ctx) != nil:
			return nil
		case err != nil:
			return err
		}
		if err := show(e); err != nil {
			return err
		}
	}
	return nil
}

func (s *eventsCommand) show(e client.Event) error {
	return s.printNext(view{data: e, names: []string{e.ID}, text: func(w io.Writer) {
		fields := []string{e.Time.Local().Format(time.TimeOnly + ".000"), e.Type}
		if s.tenants {
			fields = slices.Insert(fields, 1, e.Tenant)
		}
		if s.lines == nil {
			s.lines = newFlow(s.app, make([]int, len(fields))...)
			s.lines.widths[len(fields)-1] = 16 // most types are shorter
		}
		data := []string{string(e.Data)}
		if s.outTTY {
			data = eventWords(e.Data)
		}
		behind := slices.DeleteFunc(append([]string{e.Call}, data...), func(s string) bool { return s == "" })
		s.lines.write(w, fields, append([]string{e.Session}, behind...)...)
	}})
}

// eventWords are the fields of an event's data for people, as name=value.
func eventWords(data json.RawMessage) []string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil {
		return []string{string(data)}
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value := string(fields[name])
		var text string
		if json.Unmarshal(fields[name], &text) == nil && text != "" && !strings.ContainsAny(text, " =\"{[") {
			value = text
		}
		words = append(words, name+"="+value)
	}
	return words
}
