package shell

import (
	"regexp"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// redirects lists what redirections read and write.
func (c *scanner) redirects(d dirs, list []*syntax.Redirect) {
	for _, r := range list {
		if r.N != nil && strings.HasPrefix(r.N.Value, "{") {
			c.opaque("{name}> sets a variable")
			c.leads(r.N.Value)
		}
		c.words(d, r.Word)
		if text := c.slice(r.Word.Pos().Offset(), r.Word.End().Offset()); (r.Op == syntax.DplOut || r.Op == syntax.DplIn) && text != "-" && strings.HasPrefix(text, "-") {
			c.opaque("bash reads >&-x as >&- and x") // a word of its own, or even the command
		}
		n := c.redirected(r)
		connects(c, r)
		switch r.Op {
		case syntax.RdrOut, syntax.AppOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll, syntax.RdrInOut:
			c.target(d, c.word(r.Word), true)
		case syntax.DplOut:
			if w := c.word(r.Word); descriptor(w) {
				c.copies(n, w)
			} else {
				if !w.fixed || !needsNoQuotes(w.value) {
					// bash expands it, finds that it is no number, and expands what
					// has come out as the name of a file.
					c.opaque("bash expands what follows >& twice")
				}
				c.target(d, w, true)
			}
		case syntax.DplIn:
			if w := c.word(r.Word); descriptor(w) {
				c.copies(n, w)
			} else {
				c.opaque("it redirects from what is only known at run time")
			}
		case syntax.RdrIn:
			w := c.word(r.Word)
			c.from(n, w)
			c.target(d, w, false)
		case syntax.WordHdoc:
		case syntax.Hdoc, syntax.DashHdoc:
			c.heredoc(d, r)
		default:
			c.opaque("it has a redirection that is not known")
		}
	}
}

// connects notes that a redirection may open a connection, as bash does by such a name.
func connects(c *scanner, r *syntax.Redirect) {
	switch r.Op {
	case syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
		return
	}
	w := c.word(r.Word)
	known := strings.HasPrefix(w.value, "/dev/tcp/") || strings.HasPrefix(w.value, "/dev/udp/")
	c.scope.connected = c.scope.connected || known || !w.fixed && !w.isPipe() && (strings.HasPrefix(w.value, "/dev/") || strings.HasPrefix("/dev/", w.value))
}

// descriptor reports whether w, after ">&" or "<&", is a number or "-".
func descriptor(w word) bool {
	return w.fixed && w.value != "" && (w.value == "-" || digits(strings.TrimSuffix(w.value, "-")))
}

// feeds reports whether r gives a command what it may read.
func feeds(r *syntax.Redirect) bool {
	switch r.Op {
	case syntax.RdrIn, syntax.RdrInOut, syntax.DplIn, syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
		return true
	}
	return false
}

// redirected is the descriptor that r redirects.
func (c *scanner) redirected(r *syntax.Redirect) int {
	switch {
	case r.N != nil:
		return c.number(r.N.Value)
	case feeds(r):
		return 0
	}
	return 1
}

// number reads the number of a descriptor. For bash, one that is too long is a
// word or the name of a file; for dash, every one of more than one digit.
func (c *scanner) number(s string) int {
	most := 4
	if c.posix {
		most = 1
	}
	n, err := strconv.Atoi(s)
	if err != nil || len(s) > most {
		c.opaque("%s may be no descriptor", shorten(s))
		return 0
	}
	return n
}

// copies notes that the descriptor n becomes a copy of what w says after ">&" or
// "<&".
func (c *scanner) copies(n int, w word) {
	if s := strings.TrimSuffix(w.value, "-"); s != "" {
		c.facts.duplicate(n, c.number(s))
	}
}

// from notes that the descriptor n is redirected from w.
func (f *findings) from(n int, w word) {
	standard, is := standardFiles[w.value]
	switch {
	case w.fixed && w.value == "/dev/null":
	case w.fixed && is:
		f.facts.duplicate(n, standard)
	default:
		f.facts.files = append(f.facts.files, n)
	}
}

// target lists the target of a redirection.
func (c *scanner) target(d dirs, w word, write bool) {
	// /dev/null keeps nothing, and writing to what is open already is no edit, if
	// it was not opened for reading. A sandbox's /dev is its runtime's and not the
	// tools'.
	if w.fixed && w.value == "/dev/null" {
		return
	}
	if n, is := standardFiles[w.value]; is && w.fixed {
		if write {
			c.facts.opened = append(c.facts.opened, reopened{n, w.text})
		}
		return
	}
	if write && w.pattern {
		w.pattern = false // one file, but which one is not known
	}
	matched(c, w)
	c.resolve(d, w.text, w, write)
}

// standardFiles are the files by which the standard descriptors are opened again.
var standardFiles = map[string]int{
	"/dev/stdin": 0, "/dev/fd/0": 0, "/proc/self/fd/0": 0,
	"/dev/stdout": 1, "/dev/fd/1": 1, "/proc/self/fd/1": 1,
	"/dev/stderr": 2, "/dev/fd/2": 2, "/proc/self/fd/2": 2,
}

// delimiters are the words that may end a here-document; how others are unquoted
// is a matter of the version of bash.
var delimiters = regexp.MustCompile(`^(?:'([\w.-]+)'|"([\w.-]+)"|\\?([\w.-]+))$`)

// separates reports whether a command may end in text by other than a new line, a pipe, "&&" or "||".
func separates(text string) bool { return strings.ContainsAny(notEnds.Replace(text), ";&") }

// notEnds takes away what has a "&" and is no end by which bash writes a ";".
var notEnds = strings.NewReplacer("&&", "", ">&", "", "<&", "", "&>", "", "|&", "")

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
	if r.Hdoc.Pos().Line() != line+1 {
		// A substitution or a quote goes over the end of its line: bash may begin the text in there.
		c.opaque("the text of a here-document does not begin on the next line")
	}
	end := r.Hdoc.End().Offset()
	if c.whole > 0 && (separates(c.slice(r.Word.End().Offset(), r.Hdoc.Pos().Offset())) || end < c.whole && separates(c.slice(end, c.whole))) {
		// bash writes a substitution anew from what it has read, and loses a ";" then: "git; push" becomes "git push".
		c.opaque("a command ends with a ; behind a here-document in a substitution")
	}
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
