package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/toold/toold/client"
)

// newGenDocsCommand is for those who package toold.
func newGenDocsCommand(_ *app) *cobra.Command {
	return &cobra.Command{
		Use:    "gen-docs DIR [CONFIG.TOML] [USAGE]",
		Short:  "Write the man pages into a directory: of toolctl, of the settings, and of what toold --help prints",
		Hidden: true,
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("write man pages: %w", err)
			}
			root := c.Root()
			root.DisableAutoGenTag = true // the same sources give the same pages
			if err := doc.GenManTree(root, &doc.GenManHeader{Title: "TOOLCTL", Section: "1", Source: "toold " + client.Release}, args[0]); err != nil {
				return fmt.Errorf("write man pages: %w", err)
			}
			pages := []struct {
				name string
				of   func(text string) string
			}{{"toold.toml.5", settingsPage}, {"toold.8", daemonPage}}
			for i, from := range args[1:] {
				text, err := os.ReadFile(from)
				if err != nil {
					return usageError(err)
				}
				if err := os.WriteFile(filepath.Join(args[0], pages[i].name), []byte(pages[i].of(string(text))), 0o644); err != nil {
					return fmt.Errorf("write man pages: %w", err)
				}
			}
			return nil
		},
	}
}

// daemonPage is the man page of what toold says of itself.
func daemonPage(usage string) string {
	first, rest, _ := strings.Cut(usage, "\n")
	return `.TH TOOLD 8 "" "toold ` + client.Release + `"
.SH NAME
toold \- ` + roff(strings.TrimSuffix(strings.TrimPrefix(first, "toold "), ".")) + `
.SH DESCRIPTION
.nf
` + roff(strings.TrimSpace(rest)) + `
.fi
.SH FILES
/etc/toold/config.toml: see
.BR toold.toml (5)
.SH SEE ALSO
.BR toolctl (1),
.BR toold.toml (5)
`
}

// settingsPage is the man page of config.toml: its comments as text, and each setting as it stands there.
func settingsPage(text string) string {
	var page strings.Builder
	page.WriteString(`.TH TOOLD.TOML 5 "" "toold ` + client.Release + `"
.SH NAME
toold.toml \- the settings of toold, in /etc/toold/config.toml
.SH DESCRIPTION
`)
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch comment, ok := strings.CutPrefix(line, "# "); {
		case line == "", line == "#":
			page.WriteString(".PP\n")
		case ok:
			page.WriteString(roff(comment) + "\n")
		case strings.HasPrefix(line, "["):
			page.WriteString(".SS " + roff(line) + "\n")
		default:
			page.WriteString(".PP\n.nf\n\\fB" + roff(line) + "\\fR\n.fi\n.PP\n")
		}
	}
	return page.String() + ".SH SEE ALSO\n.BR toold (8),\n.BR toolctl (1)\n"
}

// roff is text in which nothing is a request of troff.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
