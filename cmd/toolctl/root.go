package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

const rootLong = `toolctl runs a coding agent's tools in sandboxes, through the daemon toold.

A session is one sandbox with a worktree. Tools (bash, read, write, edit,
glob, grep, list and more) are called in a session. "toolctl run" makes a session for one
command, and works without a daemon.

Exit codes: 0 ok, 1 failed, 2 usage, 3 denied, 4 not found, 5 timeout,
6 daemon unreachable. "run", "exec" and "call SESSION bash" exit with the command's
own code, with 124 after a timeout, 125 when toold itself failed, 126 when it was
denied, and 128+n when signal n ended the command. Output that cannot be written
is a failure. If its reader has closed the pipe, toolctl says nothing and exits with
141, like a program that SIGPIPE ends.`

const rootExample = `  toolctl run --worktree . -- go test ./...
  toolctl session create --worktree . --name review
  toolctl exec review -- git status --short
  toolctl call review read main.go
  toolctl run --worktree . --mode overlay -- make fix
  toolctl session rm review`

func newRootCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:               "toolctl",
		Short:             "Run a coding agent's tools in sandboxes",
		Long:              rootLong,
		Example:           rootExample,
		Version:           ownVersion().Version,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		PersistentPreRun:  func(*cobra.Command, []string) { a.started = true },
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(flagError)
	root.SetVersionTemplate(line(versionLine()) + "\n")
	a.format = formatTable
	f := root.PersistentFlags()
	f.StringVar(&a.socket, "socket", "", "the daemon's socket (default $TOOLD_SOCKET or /run/toold/toold.sock)")
	f.StringVar(&a.tenant, "tenant", "", "act for this tenant (admins only)")
	f.StringVar(&a.token, "token", "", "a session's token instead of this user's rights (default $TOOLD_TOKEN)")
	f.VarP(choice[outputFormat]{&a.format, outputFormats, "format"}, "output", "o", "table, json, yaml or name")
	f.BoolVar(&a.noHeaders, "no-headers", false, "print tables without headers")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputFormats, cobra.ShellCompDirectiveNoFileComp))
	root.AddCommand(
		newRunCommand(a), newExecCommand(a), newSessionCommand(a), newCallCommand(a), newToolsCommand(a),
		newApprovalsCommand(a), newPolicyCommand(a), newAuditCommand(a),
		newStatusCommand(a), newReadyCommand(a), newReloadCommand(a), newDrainCommand(a), newBackupCommand(a), newWaitCommand(a), newAbortCommand(a),
		newCpCommand(a), newEventsCommand(a), newTopCommand(a), newUsageCommand(a), newDoctorCommand(a),
		newGCCommand(a), newImageCommand(a), newCacheCommand(a), newConfigCommand(a), newCompletionCommand(a), newVersionCommand(a),
		newGenDocsCommand(a), newKeepCommand(a), newDiffCommand(a), newApplyCommand(a), newDiscardCommand(a),
		newCheckpointCommand(a), newRestoreCommand(a), newUndoCommand(a), newForkCommand(a), newMCPCommand(a), newNetworkCommand(a),
	)
	prepare(root)
	fitHelp(a, root)
	return root
}

// prepare gives commands what cobra does not by itself: arguments are counted by the usage
// line, a group that does nothing of its own shows its help, and an unknown subcommand is an
// error that names the nearest.
func prepare(c *cobra.Command) {
	for _, sub := range c.Commands() {
		prepare(sub)
	}
	if own := c.Args; !c.HasSubCommands() || len(arguments(c.Use)) > 0 {
		c.Args = func(c *cobra.Command, args []string) error {
			if own != nil {
				if err := own(c, args); err != nil {
					return err
				}
			}
			return checkArguments(c, args)
		}
		return
	}
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return noCommand(c, args)
	}
	if !c.Runnable() {
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	}
}

// flagError adds what to write instead to what pflag says about an unknown flag.
func flagError(c *cobra.Command, err error) error {
	if words := c.Flags().Args(); c.HasSubCommands() && c.ValidArgsFunction == nil && len(words) > 0 {
		return noCommand(c, words) // its flags are not known either
	}
	name, shown := unknownFlag(err)
	if name == "" {
		return err
	}
	return fmt.Errorf("no flag %s%s", shown, cmp.Or(foreignHint(c, name), didYouMean(name, flagNames(c))))
}

// fitHelp has help fit the terminal.
func fitHelp(a *app, root *cobra.Command) {
	wide := cmp.Or(a.width(), helpWidth)
	root.SetUsageTemplate(strings.NewReplacer(
		"FlagUsages ", fmt.Sprintf("FlagUsagesWrapped %d ", wide),
		" for more information about a command.", " for more.",
	).Replace(root.UsageTemplate()))
	root.SetHelpFunc(func(c *cobra.Command, _ []string) {
		text := reflow(strings.TrimSpace(cmp.Or(c.Long, c.Short)), wide)
		fmt.Fprintf(c.OutOrStdout(), "%s\n\n%s", text, c.UsageString())
	})
}
