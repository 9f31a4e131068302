package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"

	"github.com/toold/toold/internal/config"
	"github.com/toold/toold/internal/tomltext"
)

func newConfigCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Check and show the daemon's configuration",
		Example: `  toolctl config check /etc/toold/config.toml
  toolctl config show`,
	}
	c.AddCommand(newConfigCheckCommand(a), newConfigShowCommand(a))
	return c
}

func newConfigCheckCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration file, without a daemon",
		Long: `Read a configuration as the daemon would and report all errors with file and line,
failed [[test]]s included. Likely mistakes, such as a rule that can never win, are
warnings. The default FILE is
` + config.DefaultPath + `.`,
		Example: "  toolctl config check\n  toolctl config check ./config.toml",
		RunE: func(_ *cobra.Command, args []string) error {
			path := configPath(args)
			c, err := config.Load(path)
			if err != nil {
				return complainConfig(a, path, err)
			}
			for _, n := range c.Notes {
				fmt.Fprintln(a.stderr, "note: "+lines(n.String()))
			}
			unmet := c.Policy.Unmet()
			warnings := slices.DeleteFunc(c.Policy.Warnings(), func(p tomltext.Problem) bool { return slices.Contains(unmet, p) })
			for _, p := range warnings {
				fmt.Fprintln(a.stderr, "warning: "+lines(p.String()))
			}
			if len(unmet) > 0 {
				return complainConfig(a, path, tomltext.Join(unmet))
			}
			summary := "is valid"
			if n := len(warnings); n > 0 {
				summary += ", with " + plural(n, "warning")
			}
			_, err = fmt.Fprintf(a.stdout, "%s %s\n", line(path), summary)
			return err
		},
	}
}

func newConfigShowCommand(a *app) *cobra.Command {
	var live bool
	c := &cobra.Command{
		Use:   "show [FILE]",
		Short: "Show all settings, with the defaults filled in",
		Long: `Show every setting that a daemon started with this file would have: the file's
values over the defaults. It does not ask a running daemon. The default FILE is
` + config.DefaultPath + `, where that exists.

With --live, ask the running daemon which settings it works with now: its file as it
was read last, with variables and flags over it, and what waits for a restart as it
was at the start. For admins.

Rules, profiles and hooks are not settings: "toolctl policy explain" shows which rule
decides.`,
		Example: "  toolctl config show\n  toolctl config show ./config.toml -o json\n  diff <(toolctl config show) <(toolctl config show --live)",
		RunE: func(cmd *cobra.Command, args []string) error {
			if live {
				if len(args) > 0 {
					return usagef("--live shows the settings of the running daemon: leave %s out", line(args[0]))
				}
				text, err := a.client().Config(cmd.Context())
				if err != nil {
					return err
				}
				return printConfig(a, text)
			}
			path := ""
			if len(args) > 0 {
				path = args[0]
			}
			c, err := config.Load(path)
			if err != nil {
				return complainConfig(a, configPath(args), err)
			}
			text, err := c.TOML()
			if err != nil {
				return err
			}
			return printConfig(a, text)
		},
	}
	c.Flags().BoolVar(&live, "live", false, "the settings of the running daemon")
	return c
}

func configPath(args []string) string {
	if len(args) > 0 {
		return args[0]
	}
	return config.DefaultPath
}

// printConfig prints settings under their names in config.toml, in every format.
func printConfig(a *app, text []byte) error {
	var settings map[string]any
	if err := toml.Unmarshal(text, &settings); err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	return a.print(view{data: settings, names: config.Keys(), text: func(w io.Writer) {
		_, _ = io.WriteString(w, lines(string(text)))
	}})
}

// complainConfig prints every problem and returns the exit.
func complainConfig(a *app, path string, err error) error {
	problems := tomltext.Problems(err)
	if problems == nil {
		return err
	}
	for _, p := range problems {
		fmt.Fprintln(a.stderr, lines(p.String()))
	}
	return &exitError{exitFailed, errors.New(line(path) + " is not valid: " + plural(len(problems), "problem"))}
}
