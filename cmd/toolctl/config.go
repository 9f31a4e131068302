package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/config"
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
		Long: `Read a configuration as the daemon would and report everything that is wrong
with it, each with its file and line, failed [[test]]s included. What is likely
not meant, such as a rule that can never win, is a warning. Without FILE it is
` + config.DefaultPath + `.`,
		Example: "  toolctl config check\n  toolctl config check ./config.toml",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			path := configPath(args)
			c, err := config.Load(path)
			if err != nil {
				return a.complainConfig(path, err)
			}
			warnings := c.Policy.Warnings()
			for _, p := range warnings {
				fmt.Fprintln(a.stderr, "warning: "+lines(p.String()))
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
	return &cobra.Command{
		Use:   "show [FILE]",
		Short: "Show all settings, with the defaults filled in",
		Long: `Show every setting that a daemon started with this file would have: the file's
own over the defaults. It does not ask a running daemon. Without FILE it is
` + config.DefaultPath + `, where that exists.`,
		Example: "  toolctl config show\n  toolctl config show ./config.toml -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			path := ""
			if len(args) > 0 {
				path = args[0]
			}
			c, err := config.Load(path)
			if err != nil {
				return a.complainConfig(configPath(args), err)
			}
			return a.printConfig(c)
		},
	}
}

func configPath(args []string) string {
	if len(args) > 0 {
		return args[0]
	}
	return config.DefaultPath
}

// printConfig prints settings under their names in config.toml, in every format.
func (a *app) printConfig(c *config.Config) error {
	settings := settingsOf("", reflect.ValueOf(*c))
	var text bytes.Buffer
	if err := toml.NewEncoder(&text).Encode(settings); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	return a.print(view{data: settings, names: config.Keys(), text: func(w io.Writer) {
		_, _ = io.WriteString(w, lines(text.String()))
	}})
}

// settingsOf gives a value of the configuration as people write it: durations
// and sizes as text, and without what this version has no setting for. key is
// the value's own.
func settingsOf(key string, v reflect.Value) any {
	switch x := v.Interface().(type) {
	case client.Duration:
		return x.String()
	case client.Size:
		return x.String()
	}
	m := make(map[string]any)
	switch v.Kind() {
	case reflect.Struct:
		for f, value := range v.Fields() {
			name := settingName(f)
			if below := strings.TrimPrefix(key+"."+name, "."); name != "" && isSetting(below, value) {
				m[name] = settingsOf(below, value)
			}
		}
		return m
	case reflect.Map: // tenants, by name
		for k, value := range v.Seq2() {
			m[k.String()] = settingsOf(tenantKey, value)
		}
		return m
	}
	return v.Interface()
}

// tenantKey is the key of all tenants; what is not set for one is left out.
const tenantKey = "tenant"

func isSetting(key string, v reflect.Value) bool {
	if strings.HasPrefix(key, tenantKey) {
		return !v.IsZero()
	}
	return slices.ContainsFunc(config.Keys(), func(k string) bool { return k == key || strings.HasPrefix(k, key+".") })
}

// settingName is a field's name in config.toml; limits have theirs from the API.
func settingName(f reflect.StructField) string {
	if name := f.Tag.Get("toml"); name != "" || !f.IsExported() {
		return name
	}
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// complainConfig prints every problem and returns the exit.
func (a *app) complainConfig(path string, err error) error {
	problems := config.Problems(err)
	if problems == nil {
		return err
	}
	for _, p := range problems {
		fmt.Fprintln(a.stderr, lines(p.String()))
	}
	return &exitError{exitFailed, errors.New(line(path) + " is not valid: " + plural(len(problems), "problem"))}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
