package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/toold/toold/client"
)

// topScreen is the state of top on a terminal: which session is chosen and what the
// next key means. It does nothing by itself.
type topScreen struct {
	width, height int

	rows   []topRow
	chosen string  // an id; "" until a key has chosen
	asked  topDeed // what a y does
	said   string  // what came of the last deed; hostile
}

// topDeed is what a key asks for.
type topDeed struct {
	quit               bool
	sort               topSort
	follow, abort, end string // ids of sessions
	tenant             string // whose the session is
}

// choice is the session that keys are about.
func (s *topScreen) choice() string {
	if s.chosen == "" && len(s.rows) > 0 {
		return s.rows[0].ID
	}
	return s.chosen
}

// update takes what there is now. A choice that is gone is none: the next key must not
// be about another session by accident.
func (s *topScreen) update(rows []topRow) {
	s.rows = rows
	if s.at() < 0 {
		if s.asked != (topDeed{}) {
			s.said = "the session has ended meanwhile"
		}
		s.chosen, s.asked = "", topDeed{}
	}
}

// at is the row of the choice, -1 for none.
func (s *topScreen) at() int {
	id := s.choice()
	return slices.IndexFunc(s.rows, func(r topRow) bool { return r.ID == id })
}

// topKeys are the keys that sort.
var topKeys = map[string]topSort{"c": "cpu", "m": "memory", "p": "processes", "n": "name", "t": "age"}

// press takes what one read of the keyboard gave. What is more than one key is nothing.
func (s *topScreen) press(keys string) topDeed {
	if asked := s.asked; asked != (topDeed{}) {
		s.asked, s.said = topDeed{}, ""
		if keys == "y" {
			return asked
		}
		return topDeed{}
	}
	s.said = ""
	if keys == "q" || keys == "\x04" {
		return topDeed{quit: true}
	}
	if o, ok := topKeys[keys]; ok {
		return topDeed{sort: o}
	}
	at := s.at()
	if at < 0 {
		return topDeed{}
	}
	s.chosen = s.rows[at].ID // it stays this one, wherever it is sorted to
	switch keys {
	case "\x1b[A", "\x1bOA", "k":
		s.chosen = s.rows[max(at-1, 0)].ID
	case "\x1b[B", "\x1bOB", "j":
		s.chosen = s.rows[min(at+1, len(s.rows)-1)].ID
	case "f", "\r", "\n":
		return topDeed{follow: s.chosen, tenant: s.rows[at].Tenant}
	case "a":
		s.asked = topDeed{abort: s.chosen, tenant: s.rows[at].Tenant}
	case "e":
		s.asked = topDeed{end: s.chosen, tenant: s.rows[at].Tenant}
	}
	return topDeed{}
}

// around is how many lines of the screen are not sessions: the totals, the headers,
// what was left out, and two lines of keys below an empty one.
const around = 6

// text is the whole screen. table is that of all rows, a line each.
func (s *topScreen) text(table string, sort topSort, color bool) string {
	all := strings.SplitAfter(strings.TrimSuffix(table, "\n"), "\n")
	head, rows := all[0], all[1:]
	if !strings.HasSuffix(head, "\n") {
		head += "\n"
	}
	fits := max(s.height-around, 1)
	first := max(0, min(s.at()-fits/2, len(rows)-fits))
	shown := rows[first:min(first+fits, len(rows))]
	text := clipped(topTotals(s.rows), s.width) + "\n" + head + strings.TrimSuffix(strings.Join(shown, ""), "\n") + "\n"
	if left := len(rows) - len(shown); left > 0 {
		text += painted(clipped(fmt.Sprintf("… %d more, %d of them above", left, first), s.width), colorYellow, color) + "\n"
	}
	prompt := s.prompt(sort)
	for i, l := range prompt {
		prompt[i] = clipped(l, s.width-1)
	}
	return text + "\n" + strings.Join(prompt, "\n")
}

// prompt is what keys do now.
func (s *topScreen) prompt(sort topSort) []string {
	name := func(id string) string {
		at := slices.IndexFunc(s.rows, func(r topRow) bool { return r.ID == id })
		if at >= 0 && s.rows[at].Name != "" {
			return line(s.rows[at].Name)
		}
		return line(id)
	}
	switch {
	case s.asked.end != "":
		return []string{"end session " + name(s.asked.end) + "? y does, any other key does not"}
	case s.asked.abort != "":
		return []string{"abort the calls of " + name(s.asked.abort) + "? y does, any other key does not"}
	case s.said != "":
		return []string{line(s.said)}
	case len(s.rows) == 0:
		return []string{"no sessions; q quits"}
	}
	return []string{
		"↑↓ choose, f follow its calls, a abort its calls, e end it, q quit",
		"sort: c CPU, m memory, p processes, n name, t age; now by " + string(sort),
	}
}

// topDeeds does what takes time, beside the screen.
type topDeeds struct {
	ctx    context.Context // that of the screen
	cancel context.CancelFunc
	of     func(tenant string) *client.Client
	said   chan string
	wait   sync.WaitGroup
}

func newTopDeeds(ctx context.Context, of func(tenant string) *client.Client) *topDeeds {
	ctx, cancel := context.WithCancel(ctx)
	return &topDeeds{ctx: ctx, cancel: cancel, of: of, said: make(chan string)}
}

func (d *topDeeds) start(do topDeed) {
	d.wait.Go(func() {
		text, err := d.perform(do)
		if err != nil {
			text = err.Error()
		}
		select {
		case d.said <- text:
		case <-d.ctx.Done():
		}
	})
}

func (d *topDeeds) perform(do topDeed) (string, error) {
	c := d.of(do.tenant)
	if do.end != "" {
		s, err := c.EndSession(d.ctx, do.end, client.EndOptions{})
		if err != nil {
			return "", err
		}
		if s.Worktree.Sensitive != nil {
			return s.ID + " ended, and changed files that programs of the host run or obey: toolctl session show " + s.ID, nil
		}
		return s.ID + " ended", nil
	}
	calls, err := unfinished(d.ctx, c, do.abort)
	if err != nil {
		return "", err
	}
	ended, failed := abortAll(d.ctx, c, calls)
	return plural(len(ended), "call") + " of " + do.abort + " aborted", failed
}

// stop does not wait for what the daemon finishes without us.
func (d *topDeeds) stop() {
	d.cancel()
	d.wait.Wait()
}
