package policy

import (
	"fmt"
	"strings"

	"github.com/agnivade/levenshtein"
)

// nearest is a hint after a name that is none of known: the one that it may have
// been meant to be, or else otherwise.
func nearest(name string, known []string, otherwise string) string {
	const most = 64 // nothing of ours is longer; bounds the comparison
	if len(name) > most {
		return otherwise
	}
	best, distance := "", 3
	for _, k := range known {
		if strings.EqualFold(k, name) {
			return "names are case-sensitive, write " + k
		}
		if d := levenshtein.ComputeDistance(k, name); d < distance && d < len(k) {
			best, distance = k, d
		}
	}
	if best == "" {
		return otherwise
	}
	return fmt.Sprintf("did you mean %s?", best)
}
