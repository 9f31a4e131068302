package shell

import (
	"regexp"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// redirects lists what redirections read and write.
func (c *scanner) redirects(d dirs, list []*syntax.Redirect) {
	for _, r := range list {
		if r.N != nil && strings.HasPrefix(r.N.Value, "{") {
			c.opaque("{name}> sets a variable")
		}
		c.words(d, r.Word)
		if text := c.slice(r.Word.Pos().Offset(), r.Word.End().Offset()); (r.Op == syntax.DplOut || r.Op == syntax.DplIn) && text != "-" && strings.HasPrefix(text, "-") {
			c.opaque("bash reads >&-x as >&- and x") // a word of its own, or even the command
		}
		switch r.Op {
		case syntax.RdrOut, syntax.AppOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll, syntax.RdrInOut:
			c.target(d, c.word(r.Word), true)
		case syntax.DplOut:
			if w := c.word(r.Word); !descriptor(w) {
				if !w.fixed || !needsNoQuotes(w.value) {
					// bash expands it, finds that it is no number, and expands what
					// has come out as the name of a file.
					c.opaque("bash expands what follows >& twice")
				}
				c.target(d, w, true)
			}
		case syntax.DplIn:
			if w := c.word(r.Word); !descriptor(w) {
				c.opaque("it redirects from what is only known at run time")
			}
		case syntax.RdrIn:
			c.target(d, c.word(r.Word), false)
		case syntax.WordHdoc:
		case syntax.Hdoc, syntax.DashHdoc:
			c.heredoc(d, r)
		default:
			c.opaque("it has a redirection that is not known")
		}
	}
}

// descriptor reports whether w, after ">&" or "<&", is a number or "-".
func descriptor(w word) bool {
	return w.fixed && w.value != "" && (w.value == "-" || digits(strings.TrimSuffix(w.value, "-")))
}

// target lists the target of a redirection.
func (c *scanner) target(d dirs, w word, write bool) {
	if w.fixed && harmless[w.value] {
		return
	}
	if write && w.pattern {
		w.pattern = false // one file, but which one is not known
	}
	c.resolve(d, w.text, w, write)
}

// harmless are device files that keep nothing; what is written to them is no
// edit. A sandbox's /dev is its runtime's and not the tools'.
var harmless = setOf("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin")

// delimiters are the words that may end a here-document; how others are unquoted
// is a matter of the version of bash.
var delimiters = regexp.MustCompile(`^(?:'([\w.-]+)'|"([\w.-]+)"|\\?([\w.-]+))$`)

// heredoc scans a here-document and checks that it ends where bash ends it.
func (c *scanner) heredoc(d dirs, r *syntax.Redirect) {
	m := delimiters.FindStringSubmatch(c.slice(r.Word.Pos().Offset(), r.Word.End().Offset()))
	if m == nil {
		c.opaque("a here-document has an unusual delimiter")
		return
	}
	line := r.OpPos.Line()
	if c.heredocLines[line] {
		c.opaque("it begins two here-documents on one line")
	}
	c.heredocLines[line] = true
	if r.Hdoc == nil {
		if c.within > 0 {
			c.opaque("a here-document in a substitution is empty")
		}
		return
	}
	end := r.Hdoc.End().Offset()
	if c.within > 0 && end >= c.within {
		c.opaque("a here-document ends after the substitution that it is in")
	}
	// In a substitution bash also ends it at a line that only begins with the
	// delimiter. The parser's text ends with the delimiter itself.
	delimiter := m[1] + m[2] + m[3]
	body := c.slice(r.Hdoc.Pos().Offset(), end)
	if i := strings.LastIndexByte(body, '\n'); strings.TrimLeft(body[i+1:], "\t") == delimiter {
		body = body[:i+1]
	}
	for line := range strings.Lines(body) {
		if strings.HasPrefix(strings.TrimLeft(line, "\t"), delimiter) {
			c.opaque("a line of a here-document begins with its delimiter")
		}
	}
	if m[3] != "" && !strings.HasPrefix(m[0], `\`) {
		c.parts(d, r.Hdoc.Parts, true)
	}
}
