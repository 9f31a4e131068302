package run

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/textfile"
)

// longestNow bounds one of the lines that linesNow shows, in bytes.
const longestNow = 500

var hunkOf = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@$`) })

// linesNow shows what a diff has changed as it is now, with the lines around it that the diff has, in
// the form of read: who has it need not read the file again. It has nothing of files that were created,
// and says how many lines it leaves out. It names the files where there are several.
func linesNow(diff string, several bool) string {
	s := linesShown{several: several}
	var old, added, at int // lines of the hunk that are to come, and the number of the next one
	for l := range strings.Lines(diff) {
		l = strings.TrimSuffix(l, "\n")
		if old > 0 || added > 0 {
			switch l[:min(len(l), 1)] {
			case "-":
				old--
			case "+", " ":
				if l[0] == ' ' {
					old--
				}
				added--
				if !s.fresh {
					s.add(at, l[1:])
				}
				at++
			case "\\":
			default:
				old, added = 0, 0
			}
			continue
		}
		if name, ok := strings.CutPrefix(l, "+++ "); ok {
			s.file, s.began = name, false
		} else if m := hunkOf().FindStringSubmatch(l); m != nil {
			at, _ = strconv.Atoi(m[3])
			old, added = lengthOf(m[2]), lengthOf(m[4])
			s.fresh = old == 0 && m[1] == "0"
			s.apart = s.began
		}
	}
	return s.text()
}

// lengthOf is how many lines a hunk says that it has.
func lengthOf(s string) int {
	if s == "" {
		return 1
	}
	n, _ := strconv.Atoi(s)
	return n
}

// linesShown are the lines of a linesNow so far.
type linesShown struct {
	b       strings.Builder
	several bool   // files are named
	file    string // of the next line
	fresh   bool   // the next line is of a file that was created
	began   bool   // the file has lines
	apart   bool   // lines are missing before the next one
	left    int    // lines that are left out
}

func (s *linesShown) add(at int, text string) {
	if s.left > 0 || s.b.Len() > shownDiff {
		s.left++
		return
	}
	if s.several && !s.began {
		fmt.Fprintf(&s.b, "\n%s:", s.file)
	}
	if s.apart {
		s.b.WriteString("\n…")
	}
	s.began, s.apart = true, false
	fmt.Fprintf(&s.b, "\n%d\t%s", at, plain.Cut(strings.TrimSuffix(strings.TrimPrefix(text, string(textfile.BOM)), "\r"), longestNow))
}

// text is what there is to show; "" where that is nothing.
func (s *linesShown) text() string {
	if s.b.Len() == 0 {
		return ""
	}
	if s.left > 0 {
		fmt.Fprintf(&s.b, "\n(%s not shown)", plain.Count(s.left, "more line is", "more lines are"))
	}
	return "\nThe lines are now:" + s.b.String()
}
