package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

type eventsCommand struct {
	*app
	session, kind, after string
	follow               bool
}

func newEventsCommand(a *app) *cobra.Command {
	s := &eventsCommand{app: a}
	c := &cobra.Command{
		Use:   "events",
		Short: "Show what happens in the daemon",
		Long: `Show events: sessions that begin and end, calls, approvals, edited files. Without --follow
it shows those that are on record and ends; with it, those that come from now on
(or after --after), until Ctrl-C. A daemon that restarts does not end it.`,
		Example: `  toolctl events
  toolctl events --follow --session review
  toolctl events --follow --type 'call.*' -o json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return s.run(c.Context()) },
	}
	f := c.Flags()
	f.BoolVarP(&s.follow, "follow", "f", false, "go on with what happens from now on")
	f.StringVar(&s.session, "session", "", "only this session's")
	f.StringVar(&s.kind, "type", "", "only this type, or a prefix with * (call.*)")
	f.StringVar(&s.after, "after", "", "begin after the event with this id")
	_ = c.RegisterFlagCompletionFunc("session", a.completeSession)
	_ = c.RegisterFlagCompletionFunc("type", cobra.FixedCompletions([]string{
		client.EventSessionCreated, client.EventSessionUpdated, client.EventSessionEnded, client.EventSessionLost,
		client.EventCallPending, client.EventCallRunning, client.EventCallMetadata, client.EventCallCompleted,
		client.EventCallError, client.EventFileEdited, client.EventApprovalAsked, client.EventApprovalReplied,
		"session.*", "call.*", "approval.*",
	}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (s *eventsCommand) run(ctx context.Context) error {
	c := s.client()
	q := client.EventQuery{Session: s.session, Type: s.kind, After: s.after}
	if !s.follow {
		q.After = cmp.Or(q.After, firstEvent)
	}
	ctx, silence := s.untilSilence(ctx)
	defer silence.stop()
	for e, err := range c.Events(ctx, q) {
		switch {
		case interruption(ctx) != nil || errors.Is(context.Cause(ctx), errSilence):
			return nil // Ctrl-C is how --follow ends
		case err != nil:
			return suggestSession(ctx, c, s.session, err)
		}
		silence.broken()
		if err := s.show(e); err != nil {
			return err
		}
	}
	return nil
}

// firstEvent sorts before every event.
const firstEvent = "evt_0000000000000000000000000000"

// catchUp is how long nothing must come before the events on record are taken
// to have been shown: the stream goes over to what is new without a sign.
const catchUp = time.Second

var errSilence = errors.New("no more events on record")

// silence ends a context when nothing has come for catchUp.
type silence struct {
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

// untilSilence is without effect with --follow.
func (s *eventsCommand) untilSilence(ctx context.Context) (context.Context, *silence) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &silence{cancel: cancel}
	if !s.follow {
		w.timer = time.AfterFunc(catchUp, func() { cancel(errSilence) })
	}
	return ctx, w
}

func (w *silence) broken() {
	if w.timer != nil {
		w.timer.Reset(catchUp)
	}
}

func (w *silence) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.cancel(nil)
}

func (s *eventsCommand) show(e client.Event) error {
	var err error
	switch s.format {
	case formatJSON:
		err = printJSONLine(s.stdout, e)
	case formatYAML:
		if _, err = fmt.Fprintln(s.stdout, "---"); err == nil {
			err = printYAML(s.stdout, e)
		}
	case formatName:
		_, err = fmt.Fprintln(s.stdout, line(e.ID))
	default:
		_, err = fmt.Fprintf(s.stdout, "%s  %-16s  %s  %s  %s\n", e.Time.Local().Format(time.TimeOnly+".000"),
			line(e.Type), line(e.Session), line(e.Call), line(string(e.Data)))
	}
	return err
}
