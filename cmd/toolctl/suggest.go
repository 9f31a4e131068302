package main

import (
	"fmt"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// didYouMean names the nearest of known, as the middle of a sentence; "" when
// none is near. known may be hostile.
func didYouMean(asked string, known []string) string {
	best, distance := "", 1+max(1, min(3, len(asked)/2))
	for _, k := range known {
		d := levenshtein.ComputeDistance(strings.ToLower(asked), strings.ToLower(k))
		if strings.HasPrefix(k, asked) && asked != "" {
			d = min(d, 1)
		}
		if d < distance {
			best, distance = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", line(best))
}

func flagNames(c *cobra.Command) []string {
	var names []string
	add := func(f *pflag.Flag) { names = append(names, f.Name) }
	c.Flags().VisitAll(add)
	c.InheritedFlags().VisitAll(add)
	return names
}
