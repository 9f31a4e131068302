package output

import (
	"fmt"
	"strconv"
	"strings"
)

// Position is how far somebody has read an output: the bytes of the whole, or of
// stdout and of stderr where those are apart. As text it is the id of an output
// event, "120" or "120,7".
type Position [2]int64

// ID is the position as text.
func (p Position) ID(split bool) string {
	if split {
		return fmt.Sprintf("%d,%d", p[0], p[1])
	}
	return strconv.FormatInt(p[0], 10)
}

// ParsePosition reads what ID gives, in no other spelling.
func ParsePosition(id string) (p Position, split bool, err error) {
	first, second, split := strings.Cut(id, ",")
	p[0], err = parseOffset(first)
	if err == nil && split {
		p[1], err = parseOffset(second)
	}
	return p, split, err
}

func parseOffset(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != s || n < 0 {
		return 0, fmt.Errorf("%q is not an offset", s)
	}
	return n, nil
}
