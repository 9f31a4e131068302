package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

type topCommand struct {
	*app
	interval string
	cpu      map[string]cpuSample // by session
}

// cpuSample is what a session had used at a time.
type cpuSample struct {
	at time.Time
	ms int64
}

func newTopCommand(a *app) *cobra.Command {
	t := &topCommand{app: a, cpu: make(map[string]cpuSample)}
	c := &cobra.Command{
		Use:   "top",
		Short: "Show what the sessions use",
		Long: `Show the live sessions with their usage, again and again on a terminal, once
otherwise. Ctrl-C ends it.`,
		Example: "  toolctl top\n  toolctl top --interval 500ms\n  toolctl top -o json",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return t.run(c.Context()) },
	}
	c.Flags().StringVar(&t.interval, "interval", "2s", "`duration` between two looks")
	return c
}

func (t *topCommand) run(ctx context.Context) error {
	ms, err := millis("--interval", t.interval)
	if err != nil {
		return err
	}
	c := t.client()
	if !t.outTTY || t.format != formatTable {
		sessions, err := t.look(ctx, c)
		if err != nil {
			return err
		}
		return t.printOnce(sessions)
	}
	tick := time.NewTicker(time.Duration(ms) * time.Millisecond)
	defer tick.Stop()
	for {
		sessions, err := t.look(ctx, c)
		if interruption(ctx) != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := t.redraw(sessions); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look lists the sessions and asks for the live usage of each; one that ended
// in between is left out.
func (t *topCommand) look(ctx context.Context, c *client.Client) ([]client.Session, error) {
	listed, err := listSessions(ctx, c, client.SessionQuery{})
	if err != nil {
		return nil, err
	}
	live := listed[:0]
	for _, s := range listed {
		s, err := c.GetSession(ctx, s.ID)
		if err != nil && exitCode(err) != exitNotFound {
			return nil, err
		}
		if err == nil {
			live = append(live, *s)
		}
	}
	return live, nil
}

func (t *topCommand) printOnce(sessions []client.Session) error {
	if t.format != formatTable {
		return t.printSessions(sessions)
	}
	return t.write(t.stdout, sessions)
}

// redraw shows the table from the top of the screen, in one write so that it
// does not flicker.
func (t *topCommand) redraw(sessions []client.Session) error {
	var b bytes.Buffer
	b.WriteString("\x1b[H\x1b[2J")
	if err := t.write(&b, sessions); err != nil {
		return err
	}
	_, err := t.stdout.Write(b.Bytes())
	return err
}

func (t *topCommand) write(w io.Writer, sessions []client.Session) error {
	_, err := fmt.Fprintf(w, "%s, %s\n", plural(len(sessions), "session"), time.Now().Format(time.TimeOnly))
	table := t.newTable("ID", "NAME", "STATE", "CPU", "CPU TIME", "MEMORY", "PROCESSES", "CALLS", "AGE")
	for _, s := range sessions {
		u := s.Usage
		table.row(s.ID, s.Name, string(s.State), t.load(s), (time.Duration(u.CPUMillis) * time.Millisecond).String(),
			bytesShort(u.MemoryBytes), fmt.Sprint(u.PIDs), fmt.Sprint(u.Calls), ago(s.Created, time.Now()))
		table.paint(2, stateColor(s.State))
	}
	table.write(w)
	return err
}

// load is the share of a core since the last look; "" at the first one.
func (t *topCommand) load(s client.Session) string {
	now := cpuSample{time.Now(), s.Usage.CPUMillis}
	last, seen := t.cpu[s.ID]
	t.cpu[s.ID] = now
	elapsed := now.at.Sub(last.at)
	if !seen || elapsed <= 0 {
		return ""
	}
	used := time.Duration(now.ms-last.ms) * time.Millisecond
	return fmt.Sprintf("%.0f%%", 100*used.Seconds()/elapsed.Seconds())
}
