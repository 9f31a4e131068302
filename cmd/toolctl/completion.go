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
		Long: `Write a script that completes commands, flags, sessions, tools and approvals. It asks
the daemon for the last three.`,
		Example: `  source <(toolctl completion bash)
  toolctl completion zsh > "${fpath[1]}/_toolctl"
  toolctl completion fish > ~/.config/fish/completions/toolctl.fish`,
		Args:      cobra.OnlyValidArgs,
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

// offer lists what an argument may be; args are those before it.
type offer func(ctx context.Context, args []string) ([]cobra.Completion, error)

// always offers the same for every argument, and nothing where the daemon does not tell.
func always(o offer) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx := c.Context()
		if ctx == nil { // completions run before a command does
			ctx = context.Background()
		}
		ctx, cancel := context.WithTimeout(ctx, completionTimeout)
		defer cancel()
		out, err := o(ctx, args)
		if err != nil {
			out = nil
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// inOrder has an offer for each of the first arguments, and none for those behind them.
func inOrder(offers ...offer) cobra.CompletionFunc {
	return always(func(ctx context.Context, args []string) ([]cobra.Completion, error) {
		if len(args) >= len(offers) {
			return nil, nil
		}
		return offers[len(args)](ctx, args)
	})
}

// offered makes completions of a list: each item has words that name it, of which some may be
// empty, and says what it is about.
func offered[T any](list *client.List[T], err error, of func(*T) (about string, words []string)) ([]cobra.Completion, error) {
	if err != nil {
		return nil, err
	}
	var out []cobra.Completion
	for i := range list.Items {
		about, words := of(&list.Items[i])
		for _, word := range words {
			if word != "" {
				out = append(out, cobra.CompletionWithDesc(line(word), line(about)))
			}
		}
	}
	return out, nil
}

// firstThen has one offer for the first argument, and another for all behind it.
func firstThen(first, then offer) cobra.CompletionFunc {
	return always(func(ctx context.Context, args []string) ([]cobra.Completion, error) {
		if len(args) == 0 {
			return first(ctx, args)
		}
		return then(ctx, args)
	})
}

// sessions offers the live sessions, by name where they have one.
func (a *app) sessions(ctx context.Context, _ []string) ([]cobra.Completion, error) {
	page, err := a.client().ListSessions(ctx, client.SessionQuery{})
	return offered(page, err, func(s *client.Session) (string, []string) {
		return string(s.State) + " " + worktreeShort(s.Worktree), []string{s.Name, s.ID}
	})
}

// checkpoints offers those of the session that is the first argument, by name where they
// have one.
func (a *app) checkpoints(ctx context.Context, args []string) (out []cobra.Completion, err error) {
	if len(args) == 0 {
		return nil, nil
	}
	cl := a.client()
	err = a.withSession(ctx, cl, args[0], func(ref string) error {
		l, err := cl.Checkpoints(ctx, ref)
		out, err = offered(l, err, func(x *client.Checkpoint) (string, []string) {
			return causeText(x) + ", " + ago(x.Created, time.Now()) + " ago", []string{x.Name, x.ID}
		})
		return err
	})
	return out, err
}

// calls offers the calls of the session that is the first argument.
func (a *app) calls(ctx context.Context, args []string) (out []cobra.Completion, err error) {
	cl := a.client()
	err = a.withSession(ctx, cl, args[0], func(ref string) error {
		page, err := cl.ListCalls(ctx, ref, client.CallQuery{})
		out, err = offered(page, err, func(x *client.Call) (string, []string) { return x.Tool + " " + x.Title, []string{x.ID} })
		return err
	})
	return out, err
}

// tools offers the tools.
func (a *app) tools(ctx context.Context, _ []string) ([]cobra.Completion, error) {
	defs, err := a.client().Tools(ctx, client.ToolQuery{})
	return offered(&client.List[client.ToolDefinition]{Items: defs}, err, func(d *client.ToolDefinition) (string, []string) {
		return firstSentence(d.Description), []string{d.Name}
	})
}

// approvals offers those that are pending.
func (a *app) approvals(ctx context.Context, _ []string) ([]cobra.Completion, error) {
	page, err := a.client().ListApprovals(ctx, client.ApprovalQuery{})
	return offered(page, err, func(p *client.Approval) (string, []string) {
		return clipped(line(p.Tool)+" "+approvalShort(p), maxShort), []string{p.ID}
	})
}

// saved offers what was approved for always.
func (a *app) saved(ctx context.Context, _ []string) ([]cobra.Completion, error) {
	page, err := a.client().ListSavedApprovals(ctx, client.ApprovalQuery{})
	return offered(page, err, func(s *client.SavedApproval) (string, []string) {
		return clipped(visibleLine(s.Permission+" "+s.Pattern), maxShort), []string{s.ID}
	})
}

// images offers the images, those without a name by digest.
func (a *app) images(ctx context.Context, _ []string) ([]cobra.Completion, error) {
	page, err := a.client().ListImages(ctx)
	return offered(page, err, func(x *client.Image) (string, []string) {
		size := bytesShort(int64(x.Size))
		if len(x.Names) == 0 {
			return size, []string{x.Digest}
		}
		return shortDigest(x.Digest) + " " + size, x.Names
	})
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

func firstSentence(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if first, _, ok := strings.Cut(text, ". "); ok {
		return first
	}
	return strings.TrimSuffix(text, ".")
}
