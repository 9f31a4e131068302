package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toold/toold/internal/plain"
)

// didYouMean names the nearest of known, as the middle of a sentence; "" when
// none is near. known may be hostile.
func didYouMean(asked string, known []string) string {
	near := plain.Near(asked, known)
	for _, k := range known {
		if len(near) == 0 && asked != "" && strings.HasPrefix(k, asked) {
			near = append(near, k)
		}
	}
	if len(near) == 0 {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", line(near[0]))
}

func flagNames(c *cobra.Command) []string {
	var names []string
	add := func(f *pflag.Flag) { names = append(names, f.Name) }
	c.Flags().VisitAll(add)
	c.InheritedFlags().VisitAll(add)
	return names
}
