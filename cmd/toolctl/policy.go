package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

func newPolicyCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "policy",
		Short: "Explain, test and replay the rules",
		Example: `  toolctl policy explain bash 'git push --force'
  toolctl policy test /etc/toold/config.toml
  toolctl policy replay new-rules.toml --since 24h`,
	}
	c.AddCommand(newPolicyExplainCommand(a), newPolicyTestCommand(a), newPolicyReplayCommand(a))
	return c
}

type policyExplainCommand struct {
	*app
	session, profile, config string
}

func newPolicyExplainCommand(a *app) *cobra.Command {
	s := &policyExplainCommand{app: a}
	c := &cobra.Command{
		Use:   "explain TOOL INPUT",
		Short: "Show how a call would be judged, and by which rules",
		Long: `Show how a call would be judged: what it asks for, every rule that matches with
its file and line, which of them wins and why. Nothing runs.

The input is a JSON object, or plain text for tools that need only one string
(the command of bash, the path of read). In place of a tool, network takes HOST:PORT
and http takes a method and a URL: what the rules say of such a connection. With --session the call is judged with
that session's rules and saved approvals, and paths are resolved in it. With
--config it is judged by the rules of a file, without a daemon.

Exits with 3 when the call would be denied.`,
		Example: `  toolctl policy explain bash 'cd /tmp && git push --force'
  toolctl policy explain read .env --session review
  toolctl policy explain write '{"file_path": "a", "content": ""}' --profile p
  toolctl policy explain network api.example.com:443
  toolctl policy explain http 'GET https://example.com/index.html'
  toolctl policy explain bash 'make deploy' --config ./rules.toml`,
		ValidArgsFunction: inOrder(a.tools),
		RunE:              func(c *cobra.Command, args []string) error { return s.run(c.Context(), args[0], args[1]) },
	}
	c.Flags().StringVar(&s.session, "session", "", "judge it as a call in this session")
	c.Flags().StringVar(&s.profile, "profile", "", "judge it with this profile (default the session's, else build)")
	c.Flags().StringVar(&s.config, "config", "", "judge it by the rules of this `file`, without a daemon")
	_ = c.MarkFlagFilename("config", "toml")
	_ = c.RegisterFlagCompletionFunc("session", always(a.sessions))
	_ = c.RegisterFlagCompletionFunc("profile", completeProfile)
	return c
}

func (s *policyExplainCommand) run(ctx context.Context, tool, text string) error {
	v, err := s.verdict(ctx, tool, text)
	if err != nil {
		return err
	}
	if err := s.print(view{data: v, names: []string{v.Action}, text: func(w io.Writer) { verdictText(s.app, w, v) }}); err != nil {
		return err
	}
	if v.Action == "deny" {
		return exit(exitDenied)
	}
	return nil
}

func (s *policyExplainCommand) verdict(ctx context.Context, tool, text string) (*client.PolicyVerdict, error) {
	if s.config != "" && s.session != "" {
		return nil, usagef("--config judges without a daemon, which alone knows sessions: leave --session out")
	}
	if s.config != "" {
		v, err := explainOffline(s.config, tool, text, s.profile, s.tenant)
		if err != nil {
			return nil, complainConfig(s.app, s.config, err)
		}
		return v, nil
	}
	input, err := askedInput(ctx, s.client(), tool, text)
	if err != nil {
		return nil, err
	}
	var v *client.PolicyVerdict
	err = s.look(ctx, s.session, func(c *client.Client, session string) (err error) {
		v, err = c.ExplainPolicy(ctx, client.PolicyExplain{Tool: tool, Input: input, Profile: s.profile, Session: session})
		return err
	})
	return v, err
}
