package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
)

type topCommand struct {
	*app
	interval string
	sort     topSort
	cpu      map[string]cpuSample // by session
}

// cpuSample is what a session had used at a time.
type cpuSample struct {
	at time.Time
	ms int64
}

// topRow is a session with its share of a core since the last look, -1 at the first.
type topRow struct {
	client.Session
	load float64
}

func newTopCommand(a *app) *cobra.Command {
	t := &topCommand{app: a, cpu: make(map[string]cpuSample), sort: "age"}
	c := &cobra.Command{
		Use:   "top",
		Short: "Show what the sessions use",
		Long: `Show the live sessions and their usage, repeatedly on a terminal, else once.

On a terminal, ↑ and ↓ (or k and j) choose a session: f shows its calls as they run,
until the next key; a aborts its unfinished calls, e ends the session, both after a
y. c, m, p, n and t sort by CPU, memory, processes, name and age; q quits.`,
		Example: "  toolctl top\n  toolctl top --sort memory\n  toolctl top -o json",
		RunE:    func(c *cobra.Command, _ []string) error { return t.run(c.Context()) },
	}
	c.Flags().StringVar(&t.interval, "interval", "2s", "`duration` between updates")
	c.Flags().Var(choice[topSort]{&t.sort, topSorts, "column"}, "sort", "by "+strings.Join(topSorts, ", "))
	t.allTenantsFlag(c, "those of all tenants")
	_ = c.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(topSorts, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (t *topCommand) run(ctx context.Context) error {
	ms, err := millis("--interval", t.interval)
	if err != nil {
		return err
	}
	if t.outTTY && t.format == formatTable && t.openTerminal != nil {
		return t.interactive(ctx, time.Duration(ms)*time.Millisecond)
	}
	rows, err := t.measure(ctx)
	if err != nil {
		return err
	}
	if t.format == formatTable {
		return t.write(t.stdout, rows)
	}
	sessions := make([]client.Session, len(rows))
	for i := range rows {
		sessions[i] = rows[i].Session
	}
	return printSessions(t.app, sessions, noSessions)
}

// measure lists the sessions, with the usage that the list has of each.
func (t *topCommand) measure(ctx context.Context) ([]topRow, error) {
	listed, err := t.tenantSessions(ctx, client.SessionQuery{})
	if err != nil {
		return nil, err
	}
	live := make([]topRow, 0, len(listed))
	for _, s := range listed {
		live = append(live, topRow{s, t.load(s)})
	}
	t.sort.apply(live)
	return live, nil
}

func (t *topCommand) write(w io.Writer, rows []topRow) error {
	_, err := fmt.Fprintln(w, topTotals(rows))
	t.table(rows, "").write(w)
	return err
}

// topTotals is the line above the table.
func topTotals(rows []topRow) string {
	var u client.Usage
	load := -1.0
	for i := range rows {
		r := &rows[i]
		u.MemoryBytes += r.Usage.MemoryBytes
		u.PIDs += r.Usage.PIDs
		u.Calls += r.Usage.Calls
		if r.load >= 0 {
			load = max(load, 0) + r.load
		}
	}
	text := plural(len(rows), "session")
	if load >= 0 {
		text += fmt.Sprintf(", CPU %.0f%%", load)
	}
	return text + fmt.Sprintf(", memory %s, %s, %s, %s", bytesShort(u.MemoryBytes), plain.Count(u.PIDs, "process", "processes"),
		plural(int(u.Calls), "call"), time.Now().Format(time.TimeOnly))
}

// table has a row for each session. On a screen that chooses one, chosen is its id.
func (t *topCommand) table(rows []topRow, chosen string) *table {
	headers := []string{"ID", "NAME", "STATE", "CPU", "CPU TIME", "MEMORY", "PROCESSES", "CALLS", "AGE"}
	if chosen != "" {
		headers[6] = "PROCS" // beside the mark there is less room
		headers = append([]string{" "}, headers...)
	}
	table := t.newTable(noSessions, headers...)
	tenants := slices.ContainsFunc(rows, func(r topRow) bool { return t.stranger(r.Tenant) })
	if tenants {
		table.column("TENANT")
	}
	first := len(headers) - 9
	table.ids = []int{first}
	for i := range rows {
		r := &rows[i]
		u := r.Usage
		load := ""
		if r.load >= 0 {
			load = fmt.Sprintf("%.0f%%", r.load)
		}
		row := []string{
			r.ID, r.Name, string(r.State), load, cpuTime(u.CPUMillis),
			bytesShort(u.MemoryBytes), fmt.Sprint(u.PIDs), fmt.Sprint(u.Calls), ago(r.Created, time.Now()),
		}
		if chosen != "" {
			mark := " "
			if r.ID == chosen {
				mark = ">"
			}
			row = append([]string{mark}, row...)
		}
		table.row(row...)
		if tenants {
			table.add(r.Tenant)
		}
		table.paint(first+2, wordColor(r.State))
	}
	return table
}

// cpuTime is a processor time in a column's width.
func cpuTime(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	if d >= time.Minute {
		d = d.Round(time.Second)
	}
	return d.String()
}

// load is the share of a core since the last look, in percent; -1 at the first one.
func (t *topCommand) load(s client.Session) float64 {
	now := cpuSample{time.Now(), s.Usage.CPUMillis}
	last, seen := t.cpu[s.ID]
	t.cpu[s.ID] = now
	elapsed := now.at.Sub(last.at)
	if !seen || elapsed <= 0 {
		return -1
	}
	used := time.Duration(now.ms-last.ms) * time.Millisecond
	return max(0, 100*used.Seconds()/elapsed.Seconds())
}

// topSort is an order of sessions.
type topSort string

var topSorts = []string{"cpu", "memory", "processes", "calls", "name", "age"}

// apply sorts: most first, but names and ages from their beginning. It keeps the
// order of equals, which is that of their ages.
func (o topSort) apply(rows []topRow) {
	slices.SortStableFunc(rows, func(a, b topRow) int {
		switch o {
		case "cpu":
			return cmp.Or(cmp.Compare(b.load, a.load), cmp.Compare(b.Usage.CPUMillis, a.Usage.CPUMillis))
		case "memory":
			return cmp.Compare(b.Usage.MemoryBytes, a.Usage.MemoryBytes)
		case "processes":
			return cmp.Compare(b.Usage.PIDs, a.Usage.PIDs)
		case "calls":
			return cmp.Compare(b.Usage.Calls, a.Usage.Calls)
		case "name":
			return cmp.Compare(a.Name, b.Name)
		}
		return cmp.Compare(a.ID, b.ID)
	})
}

// interactive draws again and again, and does what keys ask for.
func (t *topCommand) interactive(ctx context.Context, every time.Duration) error {
	rows, err := t.measure(ctx)
	if interruption(ctx) != nil {
		return nil // Ctrl-C is how it ends
	}
	if err != nil {
		return err
	}
	k, err := t.keys()
	if err != nil {
		return err
	}
	done := newTopDeeds(ctx, t.clientFor)
	defer func() {
		done.stop()
		fmt.Fprintln(t.stdout)
		_ = k.Close()
	}()
	tick := time.NewTicker(every)
	defer tick.Stop()
	s := &topScreen{rows: rows}
	for {
		s.width, s.height = k.size()
		if err := t.draw(s); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case s.said = <-done.said:
		case <-tick.C:
		case p, ok := <-k.pressed:
			if !ok {
				return nil // the terminal is gone
			}
			do := s.press(p.text)
			switch {
			case do.quit:
				return nil
			case do.sort != "":
				t.sort = do.sort
				t.sort.apply(s.rows)
				continue
			case do.follow != "":
				if err := t.follow(ctx, t.clientFor(do.tenant), do.follow, k); err != nil {
					s.said = err.Error()
				}
			case do.end != "" || do.abort != "":
				done.start(do)
				continue
			default:
				continue
			}
		}
		rows, err := t.measure(ctx)
		if interruption(ctx) != nil {
			return nil
		}
		if err != nil {
			return err
		}
		s.update(rows)
	}
}

// draw shows the screen in one write, so that it does not flicker.
func (t *topCommand) draw(s *topScreen) error {
	var text bytes.Buffer
	table := t.table(s.rows, s.choice())
	table.names, table.empty = nil, "" // a line each, and a prompt that says so where there is none
	table.write(&text)
	_, err := io.WriteString(t.stdout, clearScreen+s.text(text.String(), t.sort, t.color()))
	return err
}

// follow shows the calls of a session as they run, until a key is pressed.
func (t *topCommand) follow(ctx context.Context, c *client.Client, session string, k *keyboard) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if _, err := fmt.Fprintf(t.stdout, "%sthe calls of %s; any key goes back\n", clearScreen, line(session)); err != nil {
		return err
	}
	logs := &sessionLogsCommand{app: t.app, follow: true}
	var err error
	ended := make(chan struct{})
	go func() { defer close(ended); err = logs.followAll(ctx, c, session) }()
	select {
	case <-k.pressed:
		cancel()
		<-ended
		return nil
	case <-ended:
		if err == nil && ctx.Err() == nil {
			_, err = fmt.Fprintln(t.stdout, "the session has ended; any key goes back")
			select {
			case <-k.pressed:
			case <-ctx.Done():
			}
		}
		return err
	}
}
