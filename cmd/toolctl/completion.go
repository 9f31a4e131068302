package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/config"
	"github.com/toold/toold/internal/policy"
)

// completionTimeout bounds what a press of the tab key may wait for. A daemon that is
// away refuses at once; one on a busy host is late, and late is better than nothing.
const completionTimeout = 10 * time.Second

func newCompletionCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Write a completion script for a shell",
		Long: `Write a script that completes commands, flags, sessions, tools and approvals, which
are asked of the daemon.`,
		Example: `  source <(toolctl completion bash)
  toolctl completion zsh > "${fpath[1]}/_toolctl"
  toolctl completion fish > ~/.config/fish/completions/toolctl.fish`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []cobra.Completion{"bash", "zsh", "fish"},
		RunE: func(c *cobra.Command, args []string) error {
			switch root := c.Root(); args[0] {
			case "zsh":
				return root.GenZshCompletion(a.stdout)
			case "fish":
				return root.GenFishCompletion(a.stdout, true)
			default:
				return root.GenBashCompletionV2(a.stdout, true)
			}
		},
	}
	return c
}

// completeSession offers the sessions for a command that takes one.
func (a *app) completeSession(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.sessionCompletions(c), cobra.ShellCompDirectiveNoFileComp
}

// completeSessions offers them for every argument.
func (a *app) completeSessions(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.sessionCompletions(c), cobra.ShellCompDirectiveNoFileComp
}

// completeSessionCall offers a session, then its calls.
func (a *app) completeSessionCall(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return a.sessionCompletions(c), cobra.ShellCompDirectiveNoFileComp
	case 1:
		return a.callCompletions(c, args[0]), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeCall offers a session, a tool, and files for the input.
func (a *app) completeCall(c *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return a.sessionCompletions(c), cobra.ShellCompDirectiveNoFileComp
	case 1:
		return a.completeTool(c, args, toComplete)
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeExplain offers a tool, and nothing for its input.
func (a *app) completeExplain(c *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeTool(c, args, toComplete)
}

func (a *app) completeTool(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := completionContext(c)
	defer cancel()
	defs, err := a.client().Tools(ctx, client.ToolQuery{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	for _, d := range defs {
		out = append(out, cobra.CompletionWithDesc(line(d.Name), line(firstSentence(d.Description))))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// sessionCompletions lists the live sessions, by name where they have one.
func (a *app) sessionCompletions(c *cobra.Command) []cobra.Completion {
	ctx, cancel := completionContext(c)
	defer cancel()
	page, err := a.client().ListSessions(ctx, client.SessionQuery{})
	if err != nil {
		return nil
	}
	var out []cobra.Completion
	for _, s := range page.Items {
		about := line(string(s.State) + " " + worktreeShort(s.Worktree))
		if s.Name != "" {
			out = append(out, cobra.CompletionWithDesc(line(s.Name), about))
		}
		out = append(out, cobra.CompletionWithDesc(line(s.ID), about))
	}
	return out
}

func (a *app) callCompletions(c *cobra.Command, ref string) []cobra.Completion {
	ctx, cancel := completionContext(c)
	defer cancel()
	cl := a.client()
	var page *client.List[client.Call]
	err := a.withSession(ctx, cl, ref, func(ref string) (err error) {
		page, err = cl.ListCalls(ctx, ref, client.CallQuery{})
		return err
	})
	if err != nil {
		return nil
	}
	var out []cobra.Completion
	for _, call := range page.Items {
		out = append(out, cobra.CompletionWithDesc(line(call.ID), line(call.Tool+" "+call.Title)))
	}
	return out
}

// completeAnswer offers a pending approval, then the answers.
func (a *app) completeAnswer(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return a.approvalCompletions(c), cobra.ShellCompDirectiveNoFileComp
	case 1:
		return answers, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) approvalCompletions(c *cobra.Command) []cobra.Completion {
	ctx, cancel := completionContext(c)
	defer cancel()
	page, err := a.client().ListApprovals(ctx, client.ApprovalQuery{})
	if err != nil {
		return nil
	}
	var out []cobra.Completion
	for i := range page.Items {
		p := &page.Items[i]
		out = append(out, cobra.CompletionWithDesc(line(p.ID), clipped(line(p.Tool)+" "+approvalShort(p), maxShort)))
	}
	return out
}

// completeSaved offers what was approved for always, for every argument.
func (a *app) completeSaved(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := completionContext(c)
	defer cancel()
	page, err := a.client().ListSavedApprovals(ctx, client.ApprovalQuery{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	for i := range page.Items {
		s := &page.Items[i]
		out = append(out, cobra.CompletionWithDesc(line(s.ID), clipped(visibleLine(s.Permission+" "+s.Pattern), maxShort)))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeProfile offers the profiles of this host's configuration, where it can
// be read, and else those that there always are.
func completeProfile(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	rules := policy.Default()
	if c, err := config.Load(""); err == nil {
		rules = c.Policy
	}
	var out []cobra.Completion
	for _, p := range rules.Profiles() {
		out = append(out, cobra.CompletionWithDesc(line(p), line(rules.Description(p))))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completionContext is of its own where the command has none: completions run
// before a command does.
func completionContext(c *cobra.Command) (context.Context, context.CancelFunc) {
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	return context.WithTimeout(ctx, completionTimeout)
}

func firstSentence(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if first, _, ok := strings.Cut(text, ". "); ok {
		return first
	}
	return strings.TrimSuffix(text, ".")
}

// completeImages offers the images for every argument.
func (a *app) completeImages(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := completionContext(c)
	defer cancel()
	page, err := a.client().ListImages(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	for i := range page.Items {
		img := &page.Items[i]
		for _, name := range img.Names {
			out = append(out, cobra.CompletionWithDesc(line(name), line(shortDigest(img.Digest)+" "+bytesShort(int64(img.Size)))))
		}
		if len(img.Names) == 0 {
			out = append(out, cobra.CompletionWithDesc(line(img.Digest), bytesShort(int64(img.Size))))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
