package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

type policyReplayCommand struct {
	*app
	session, since string
	limit          int
	fail           bool
}

func newPolicyReplayCommand(a *app) *cobra.Command {
	s := &policyReplayCommand{app: a}
	c := &cobra.Command{
		Use:   "replay RULES.toml",
		Short: "Show recorded calls that other rules would judge differently",
		Long: `Judge the recorded calls by the rules of a file, and show those whose verdict
changes. Nothing runs, and the daemon's own rules do not change. For admins.`,
		Example: `  toolctl policy replay new.toml --since 24h
  toolctl policy replay new.toml --session review --fail   # exits with 1`,
		RunE: func(c *cobra.Command, args []string) error { return s.run(c.Context(), args[0]) },
	}
	f := c.Flags()
	f.StringVar(&s.session, "session", "", "only the calls of this session")
	f.StringVar(&s.since, "since", "", "only calls not older than this `duration`, such as 24h")
	f.IntVar(&s.limit, "limit", 0, "how many calls at most, newest first (default 10000)")
	f.BoolVar(&s.fail, "fail", false, "exit with 1 when a verdict changes")
	_ = c.RegisterFlagCompletionFunc("session", always(a.sessions))
	return c
}

// maxRules bounds a rules file, in bytes: the daemon takes no larger one.
const maxRules = 1 << 20

func (s *policyReplayCommand) run(ctx context.Context, path string) error {
	if _, err := parseDurationFlag("--since", s.since); err != nil {
		return err
	}
	rules, err := readRules(path)
	if err != nil {
		return err
	}
	progress := s.progress("judging recorded calls")
	var r *client.PolicyReplayed
	err = s.look(ctx, s.session, func(c *client.Client, session string) (err error) {
		r, err = c.ReplayPolicy(ctx, client.PolicyReplay{
			Rules: rules, Name: path, Session: session, Tenant: s.tenant, Since: s.since, Limit: s.limit,
		})
		return err
	})
	progress.stop()
	if err != nil {
		return err
	}
	if err := s.printReplay(r); err != nil {
		return err
	}
	if s.fail && len(r.Changes) > 0 {
		return exit(exitFailed)
	}
	return nil
}

func readRules(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", usageError(err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRules+1))
	if err != nil {
		return "", fmt.Errorf("read rules: %w", err)
	}
	if len(b) > maxRules {
		return "", usagef("%s is larger than %d bytes", path, maxRules)
	}
	return string(b), nil
}

func (s *policyReplayCommand) printReplay(r *client.PolicyReplayed) error {
	names := namesOf(r.Changes, func(x *client.PolicyChange) string { return x.CallID })
	return s.print(view{data: r, names: names, text: func(w io.Writer) {
		if len(r.Changes) > 0 {
			t := s.newTable("", "TIME", "CALL", "TOOL", "INPUT", "WAS", "BY", "NOW", "BY")
			t.ids = []int{1}
			for i := range r.Changes {
				x := &r.Changes[i]
				t.row(timeText(&x.Time), x.CallID, x.Tool, clipped(line(inputShort(x.Input)), maxShort), x.Was, x.WasRule, x.Now, x.NowRule)
				t.paint(4, wordColor(x.Was))
				t.paint(6, wordColor(x.Now))
			}
			t.write(w)
		}
		for _, n := range r.Notes {
			s.say("note: %s", line(n))
		}
		s.say("%s judged, %s", plural(r.Calls, "call"), plural(len(r.Changes), "changed verdict"))
	}})
}

// inputShort is what an input is about: its command or path, where it has one.
func inputShort(input json.RawMessage) string {
	var about struct {
		Command string `json:"command"`
		Path    string `json:"file_path"`
	}
	if json.Unmarshal(input, &about) != nil || about.Command+about.Path == "" {
		return string(input)
	}
	return about.Command + about.Path
}
