package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
)

func newSessionShowCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "show SESSION",
		Short:             "Show a session with its limits and live usage",
		Example:           "  toolctl session show review\n  toolctl session show review -o json | jq .usage",
		ValidArgsFunction: inOrder(a.sessions),
		RunE: func(c *cobra.Command, args []string) error {
			return a.look(c.Context(), args[0], func(cl *client.Client, ref string) error {
				s, err := cl.GetSession(c.Context(), ref)
				if err != nil {
					return err
				}
				return a.print(view{data: s, names: []string{s.ID}, text: func(w io.Writer) { sessionText(a, w, s) }})
			})
		},
	}
}

// sessionText prints a session as rows of name and value; what is not set is
// left out.
func sessionText(a *app, w io.Writer, s *client.Session) {
	t := a.pairs()
	add := func(name, value string) {
		if value != "" {
			t.row(name, value)
		}
	}
	add("id", s.ID)
	add("name", s.Name)
	add("state", string(s.State))
	t.paint(1, wordColor(s.State))
	add("reason", s.Reason)
	add("tenant", s.Tenant)
	add("profile", s.Profile)
	add("runtime", strings.TrimSpace(s.Driver+" "+s.Runtime))
	add("image", s.Image)
	add("worktree", worktreeLong(s.Worktree))
	if i := s.Worktree.Identity; i != nil {
		add("commits by", i.Name+" <"+i.Email+">")
	}
	if until := s.Worktree.KeptUntil; until != nil {
		add("changes", "kept until "+timeText(until)+": toolctl diff|apply|discard "+s.ID)
	}
	if c := s.Worktree.Sensitive; c != nil {
		for _, f := range c.Changed {
			add("changed", f+" (programs of the host run or obey it)")
		}
		add("changed", strings.Join(c.Build, ", "))
		if c.More > 0 {
			add("changed", plural(c.More, "file")+" more")
		}
		add("unchecked", c.Unchecked)
	}
	for _, m := range s.Mounts {
		how := "read-only"
		if m.Mode == client.MountCow {
			how = "what is written there ends with the session"
		}
		add("mount", m.Source+" at "+m.Target+" ("+how+")")
	}
	add("network", s.Network.Mode)
	add("limits", limitsText(s.Limits))
	add("budget", budgetText(s))
	add("labels", formatLabels(s.Labels))
	add("created", timeText(&s.Created))
	add("expires", timeText(s.Expires))
	add("ended", timeText(s.Ended))
	add("usage", usageText(s.Usage))
	for _, t := range s.Todos {
		add("todo", t.Status+": "+t.Content)
	}
	for _, n := range s.Notes {
		add("note", n)
	}
	t.write(w)
}

func worktreeLong(w client.Worktree) string {
	text := worktreeShort(w)
	if w.Target != "" {
		text += " at " + w.Target
	}
	if w.IDMap != "" {
		text += ", " + w.IDMap
	}
	return text
}

func usageText(u client.Usage) string {
	return fmt.Sprintf("cpu %s, memory %s, %s, disk %s, %s",
		time.Duration(u.CPUMillis)*time.Millisecond, bytesShort(u.MemoryBytes), plain.Count(u.PIDs, "process", "processes"),
		bytesShort(u.DiskBytes), plain.Count(u.Calls, "call", "calls"))
}

func limitsText(l client.Limits) string {
	text := fmt.Sprintf("cpus %g, memory %s, pids %d", l.CPUs, l.Memory, l.PIDs)
	if l.Tmp > 0 {
		text += ", tmp " + l.Tmp.String()
	}
	if l.Disk > 0 {
		text += ", disk " + l.Disk.String()
	}
	return text + fmt.Sprintf(", calls %d, wall %s", l.Calls, l.Wall)
}
