package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/toold/toold/internal/config"
	"github.com/toold/toold/internal/policy"
)

func newPolicyTestCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "test [FILE]",
		Short: "Run the [[test]]s of a rules file, without a daemon",
		Long: `Read a file of rules, or a whole configuration, and run its [[test]]s. It reports
each failed test and each error in the rules with file and line. The default FILE
is ` + config.DefaultPath + `.

The daemon does the same at a reload, which fails, and when it starts: there it only
warns where more is asked or denied than a test expects. There is no sandbox here, so paths lead where their text says.`,
		Example: "  toolctl policy test\n  toolctl policy test ./rules.toml",
		RunE: func(_ *cobra.Command, args []string) error {
			path := configPath(args)
			rules, err := loadRules(path)
			if err != nil {
				return complainConfig(a, path, err)
			}
			return a.printTests(path, rules)
		},
	}
}

// loadRules reads the rules of a file that has nothing else, or of a whole
// configuration.
func loadRules(path string) (*policy.Set, error) {
	text, err := readRules(path)
	if err != nil {
		return nil, err
	}
	return policy.Parse(path, []byte(text))
}

func (a *app) printTests(path string, rules *policy.Set) error {
	for _, p := range rules.Warnings() {
		fmt.Fprintln(a.stderr, "warning: "+lines(p.String()))
	}
	passed := struct {
		File   string `json:"file"`
		Passed int    `json:"passed"`
	}{path, rules.Tests()}
	return a.print(view{data: passed, names: []string{path}, text: func(w io.Writer) {
		fmt.Fprintf(w, "%s: %s passed\n", line(path), plural(rules.Tests(), "test"))
	}})
}
