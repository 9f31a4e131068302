package plain

import (
	"fmt"
	"slices"
	"strings"
)

// Names counts things that have names, and keeps the first of these to show. Its zero value
// has none.
type Names struct {
	N     int // all
	first []string
}

// maxNames is how many names are kept.
const maxNames = 20

// Add counts one more.
func (n *Names) Add(name string) {
	n.N++
	at, _ := slices.BinarySearch(n.first, name)
	if at < maxNames {
		n.first = slices.Insert(n.first, at, name)
		n.first = n.first[:min(len(n.first), maxNames)]
	}
}

// String has the names that come first, as Name shows them, and how many more there are.
func (n *Names) String() string {
	names := make([]string, len(n.first))
	for i, p := range n.first {
		names[i] = Name(p)
	}
	if more := n.N - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
