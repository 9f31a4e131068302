package policy

import (
	"fmt"
	"strings"

	"github.com/toold/toold/internal/plain"
)

// nearest is a hint after a name that is none of known: the one that it may have
// been meant to be, or else otherwise.
func nearest(name string, known []string, otherwise string) string {
	near := plain.Near(name, known)
	switch {
	case len(near) == 0:
		return otherwise
	case strings.EqualFold(near[0], name):
		return "names are case-sensitive, write " + near[0]
	}
	return fmt.Sprintf("did you mean %s?", near[0])
}
