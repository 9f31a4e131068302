package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// fold breaks text at spaces, so that no line is wider than that; 0 is any width. The
// lines that it makes begin with hang. A command to be typed stays whole: a terminal
// lets it be copied, and a line break in it would cut it in two.
func fold(text string, wide int, hang string) string {
	if wide == 0 {
		return text
	}
	var all []string
	for l := range strings.SplitSeq(text, "\n") {
		for width(l) > wide && !isCommand(l) {
			n := fitting(l, wide)
			space := strings.LastIndexByte(l[:n+1], ' ')
			if strings.TrimSpace(l[:max(space, 0)]) == "" {
				break // one word, which cannot be broken
			}
			all = append(all, strings.TrimRight(l[:space], " "))
			l = hang + strings.TrimLeft(l[space:], " ")
		}
		all = append(all, l)
	}
	return strings.Join(all, "\n")
}

// isCommand reports whether a line is one to be typed.
func isCommand(line string) bool {
	rest, indented := strings.CutPrefix(strings.TrimPrefix(line, "toolctl:"), "  ")
	return indented && strings.HasPrefix(strings.TrimLeft(rest, " "), "toolctl ")
}

// reflow is fold for help: the lines of a paragraph are joined before; those that are
// indented, and what stands behind them, stay as they are.
func reflow(text string, wide int) string {
	if wide == 0 {
		return text
	}
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		if !strings.HasPrefix(p, " ") && !strings.Contains(p, "\n ") {
			p = strings.ReplaceAll(p, "\n", " ")
		}
		paragraphs[i] = fold(p, wide, "")
	}
	return strings.Join(paragraphs, "\n\n")
}

// fitHelp has help fit the terminal.
func fitHelp(a *app, root *cobra.Command) {
	if wide := a.width(); wide > 0 {
		root.SetUsageTemplate(strings.NewReplacer(
			"FlagUsages ", fmt.Sprintf("FlagUsagesWrapped %d ", wide),
			" for more information about a command.", " for more.",
		).Replace(root.UsageTemplate()))
	}
	root.SetHelpFunc(func(c *cobra.Command, _ []string) {
		text := reflow(strings.TrimSpace(cmp.Or(c.Long, c.Short)), a.width())
		fmt.Fprintf(c.OutOrStdout(), "%s\n\n%s", text, c.UsageString())
	})
}
