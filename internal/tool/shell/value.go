package shell

import (
	"maps"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Values of variables and words, as far as the text decides them. They are texts in which some
// characters, which no text that is scanned can have, stand for what is not known to the letter.
const (
	// anyName is some text without a slash that is neither empty nor "." nor "..".
	anyName = "\x00"
	// startDir, at the beginning, is the directory in which the command starts.
	startDir = "\x01"
	// wild is a wildcard that the shell expands.
	wild = "\x02"
	// gap is where the shell parts a word into two.
	gap = "\x03"
	// maybe is nothing, in the place of what a program prints that may fail.
	maybe = "\x06"
	// anyPath is a relative path without "..", of one name or more, and without a line break.
	anyPath = "\x05"
	// anyWord is an anyName of letters and digits, which the shell does not part.
	anyWord = "\x04"
	// loose are those that say what is below a directory, not what to the letter.
	loose = anyName + wild + anyPath + anyWord
	// given are those of names that somebody may have given, with blanks in them.
	given = anyName + wild + anyPath
)

// Bounds of what is known of variables; what is above them is not known.
const (
	maxValues = 32
	maxValue  = 4096
	maxKnown  = 64 // variables
)

// values are all that a word or a variable may be; none at all means that this is not known.
type values []string

// or is all that v or w is.
func (v values) or(w ...string) values {
	if v == nil || w == nil {
		return nil
	}
	for _, s := range w {
		if !slices.Contains(v, s) {
			v = append(slices.Clip(v), s)
		}
	}
	if len(v) > maxValues {
		return nil
	}
	return v
}

// each is what f makes of every value; nil where it makes nothing of one.
func (v values) each(f func(string) values) values {
	if v == nil {
		return nil
	}
	all := values{}
	for _, s := range v {
		if all = all.or(f(s)...); all == nil {
			return nil
		}
	}
	return all
}

// then is v with w behind it.
func (v values) then(w values) values {
	if w == nil {
		return nil
	}
	return v.each(func(s string) values {
		return w.each(func(t string) values {
			if len(s)+len(t) > maxValue {
				return nil
			}
			return values{s + t}
		})
	})
}

// known are the variables whose values are known. It does not change.
type known map[string]values

// with is k where name has the values v.
func (k known) with(name string, v values) known {
	if _, has := k[name]; !has && (v == nil || len(k) >= maxKnown) {
		return k
	}
	k = maps.Clone(k)
	if delete(k, name); v != nil {
		if k == nil {
			k = known{}
		}
		k[name] = v
	}
	return k
}

// or is what is known where either k or l holds.
func (k known) or(l known) known {
	if len(k) == 0 || len(l) == 0 {
		return nil
	}
	if maps.EqualFunc(k, l, func(v, w values) bool { return len(v) == len(w) && (len(v) == 0 || &v[0] == &w[0]) }) {
		return k
	}
	both := known{}
	for name, v := range k {
		if v = v.or(l[name]...); v != nil {
			both[name] = v
		}
	}
	return both
}

// set is d after the variables of that name have got the values.
func (d dirs) set(name string, v values) dirs {
	d.known = d.known.with(name, v).with(name+elements, nil)
	return d
}

// unset is d where nothing is known of these variables.
func (d dirs) unset(names ...string) dirs {
	for _, name := range names {
		d = d.set(name, nil)
	}
	return d
}

// here is what PWD has.
func (d dirs) here() values {
	if d.lost || len(d.list) == 0 {
		return nil
	}
	all := values{}
	for _, dir := range d.list {
		switch {
		case path.IsAbs(dir):
		case dir == "":
			dir = startDir
		default:
			dir = startDir + "/" + dir
		}
		all = all.or(dir)
	}
	return all
}

// valueOf is what a variable of the shell has.
func valueOf(c *scanner, d dirs, name string) values {
	if c.facts.unknown {
		return nil
	}
	c.facts.used = true
	if v, has := d.known[name]; has {
		return v
	}
	switch name {
	case "HOME":
		if c.home != "" {
			return values{c.home}
		}
	case "PWD":
		return d.here()
	case "TMPDIR":
		if c.home != "" { // else its environment is not the session's
			return values{"/tmp"}
		}
	case "$", "#", "?", "RANDOM", "SECONDS", "LINENO", "UID", "EUID", "PPID":
		return values{anyWord}
	case "!":
		return values{anyWord, ""}
	}
	return nil
}

// How the shell takes a word.
type manner int

const (
	asWord   manner = iota // wildcards are expanded, expansions are parted
	asValue                // of an assignment
	asQuoted               // in double quotes
)

// evaluate is all that a word may become, with wildcards and gaps.
func evaluate(c *scanner, d dirs, n *syntax.Word, m manner) values {
	if n == nil {
		return values{""}
	}
	if c.facts.unknown || len(n.Parts) > 1 && slices.ContainsFunc(n.Parts, hasList) {
		return nil
	}
	c.facts.used = true
	parts, out := n.Parts, values{""}
	if lit, is := first(parts).(*syntax.Lit); is && strings.HasPrefix(lit.Value, "~") {
		prefix, rest, found := strings.Cut(lit.Value, "/")
		if prefix != "~" || c.home == "" || !found && len(parts) > 1 || strings.ContainsAny(rest, "~:") {
			return nil
		}
		out = values{c.home}
		if found {
			out = out.then(literalPart(c, "/"+rest, m))
		}
		parts = parts[1:]
	}
	if m == asWord && strings.Contains(c.slice(n.Pos().Offset(), n.End().Offset()), "{") && slices.ContainsFunc(parts, hasBrace) {
		return nil // lists come before all else
	}
	return out.then(partValues(c, d, parts, m))
}

func first(parts []syntax.WordPart) syntax.WordPart {
	if len(parts) == 0 {
		return nil
	}
	return parts[0]
}

// hasList reports whether a part has the elements of an array, of which the first and the last are
// joined with what stands beside them.
func hasList(part syntax.WordPart) bool {
	switch p := part.(type) {
	case *syntax.DblQuoted:
		return slices.ContainsFunc(p.Parts, hasList)
	case *syntax.ParamExp:
		return p.Index != nil
	}
	return false
}

// hasBrace reports whether a part may begin a list.
func hasBrace(part syntax.WordPart) bool {
	lit, is := part.(*syntax.Lit)
	return is && strings.Contains(lit.Value, "{")
}

func partValues(c *scanner, d dirs, parts []syntax.WordPart, m manner) values {
	out := values{""}
	for _, part := range parts {
		var v values
		switch p := part.(type) {
		case *syntax.Lit:
			v = literalPart(c, p.Value, m)
		case *syntax.SglQuoted:
			if !p.Dollar {
				v = values{p.Value}
			}
		case *syntax.DblQuoted:
			if !p.Dollar && (len(p.Parts) == 1 || !slices.ContainsFunc(p.Parts, hasList)) {
				v = partValues(c, d, p.Parts, asQuoted)
			}
		case *syntax.ParamExp:
			v = parted(parameter(c, d, p), m)
		case *syntax.CmdSubst:
			if v = printedBy(c, d, p); !certain(p) {
				v = v.or(maybe)
			}
			v = parted(v, m)
		case *syntax.ArithmExp:
			v = values{anyWord} // a number
		}
		if out = out.then(v); out == nil {
			return nil
		}
	}
	return out
}

// certain reports whether a substitution gives something whatever happens.
func certain(s *syntax.CmdSubst) bool {
	if len(s.Stmts) != 1 {
		return false
	}
	call, is := s.Stmts[0].Cmd.(*syntax.CallExpr)
	return is && len(call.Args) > 0 && call.Args[0].Lit() == "pwd"
}

// literalPart is what stands in a word as it is.
func literalPart(c *scanner, s string, m manner) values {
	if m == asValue && strings.Contains(s, ":~") {
		return nil // another home
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		ch := s[i]
		switch {
		case ch == '\\' && i+1 < len(s) && (m != asQuoted || strings.IndexByte("$`\"\\", s[i+1]) >= 0):
			i++
			ch = s[i]
		case m == asWord && strings.IndexByte("*?[", ch) >= 0:
			ch = wild[0]
		}
		b.WriteByte(ch)
	}
	return values{b.String()}
}

// parted is what the shell makes of the values of an expansion that stands in a word. A file may be called
// "a /etc/x", which is two words then: of names nothing is known.
func parted(v values, m manner) values {
	if m != asWord {
		return v
	}
	return v.each(func(s string) values {
		if strings.ContainsAny(s, given) {
			return nil
		}
		if strings.Contains(s, `\`) {
			return nil // whether it hides a wildcard depends on the version
		}
		return values{strings.Map(func(r rune) rune {
			switch r {
			case '*', '?', '[':
				return rune(wild[0])
			case ' ', '\t', '\n':
				return rune(gap[0])
			}
			return r
		}, s)}
	})
}

// parameter is what ${…} gives, before it is parted.
func parameter(c *scanner, d dirs, p *syntax.ParamExp) values {
	if p.Index != nil && p.Param != nil && p.Exp == nil && p.Slice == nil && p.Repl == nil && !p.Excl && !p.Length && c.fixedIndex(p.Index) {
		return valueOf(c, d, p.Param.Value+elements)
	}
	if p.Param == nil || p.Excl || p.Width || p.IsSet || p.Index != nil || p.Slice != nil || p.Repl != nil || p.Names != 0 ||
		p.Flags != nil || p.NestedParam != nil || len(p.Modifiers) > 0 {
		return nil
	}
	if p.Length {
		return values{anyWord}
	}
	v := valueOf(c, d, p.Param.Value)
	if v == nil || p.Exp == nil {
		return v
	}
	switch p.Exp.Op {
	case syntax.DefaultUnset, syntax.DefaultUnsetOrNull:
		if p.Exp.Op == syntax.DefaultUnsetOrNull && !slices.Contains(v, "") && !slices.Contains(v, maybe) {
			return v
		}
		return v.or(operandValues(c, d, p.Exp.Word)...)
	case syntax.AlternateUnset, syntax.AlternateUnsetOrNull:
		return operandValues(c, d, p.Exp.Word).or("")
	case syntax.RemSmallSuffix, syntax.RemLargeSuffix, syntax.RemSmallPrefix, syntax.RemLargePrefix:
		if p.Exp.Word == nil {
			return v // ${x#} takes nothing away
		}
		w := c.word(p.Exp.Word)
		return v.each(func(s string) values { return trimmed(sure(s), p.Exp.Op, w) })
	}
	return nil
}

// operandValues are the values of the word in an expansion, where quotes decide what "~" is.
func operandValues(c *scanner, d dirs, n *syntax.Word) values {
	if n != nil && strings.HasPrefix(c.slice(n.Pos().Offset(), n.End().Offset()), "~") {
		return nil
	}
	return evaluate(c, d, n, asQuoted)
}

// trimmed is s without what the pattern w matches at one end, for the patterns that people use.
func trimmed(s string, op syntax.ParExpOperator, w word) values {
	at := strings.LastIndexByte(s, '/')
	switch {
	case w.text == "/*" && op == syntax.RemSmallSuffix && !strings.Contains(s, anyPath):
		if at >= 0 {
			s = s[:at]
		}
		return values{s}
	case w.text == "*/" && op == syntax.RemLargePrefix:
		if s = s[at+1:]; strings.Contains(s, anyPath) || strings.HasPrefix(s, startDir) {
			s = anyName
		}
		return values{s}
	case !w.fixed || w.tilde || op != syntax.RemSmallSuffix && op != syntax.RemLargeSuffix:
		return nil
	}
	if cut, is := strings.CutSuffix(s, w.value); is {
		return values{cut}
	}
	last := strings.LastIndexAny(s, loose+startDir)
	switch tail := s[last+1:]; {
	case last < 0, !strings.HasSuffix(w.value, tail):
		return values{s} // it does not match
	case tail == "" && s[last:] != startDir && !strings.Contains(w.value, "/"):
		return values{s, s[:last]} // what is not known gets shorter
	}
	return nil
}

// sure is s without what stands for what programs may not have printed.
func sure(s string) string { return strings.ReplaceAll(s, maybe, "") }

// fieldsOf are the words that the shell makes of one that is only known at run time, each with a
// value; the word itself where that is not known either.
func fieldsOf(c *scanner, d dirs, w word) []word {
	all := targetsOf(c, d, w)
	for i := range all {
		if all[i].made {
			all[i].value = sure(all[i].value)
		}
	}
	return all
}

// targetsOf are fields, of which those whose beginning a program may not print still say so.
func targetsOf(c *scanner, d dirs, w word) []word {
	if w.fixed || w.pattern || w.node == nil || w.made {
		return []word{w}
	}
	v := evaluate(c, d, w.node, asWord)
	if v == nil {
		return []word{w}
	}
	all := []word{}
	for _, s := range v {
		parts := strings.Split(s, gap)
		for _, part := range parts {
			if part == "" && len(parts) > 1 {
				continue
			}
			all = append(all, word{text: shown(part), start: w.start, end: w.end, value: part, fixed: true, bare: true, made: true, parted: len(parts) > 1 || strings.Contains(part, wild)})
		}
	}
	return all
}

// forPeople writes what stands for something unknown as people are shown it. To make it takes longer
// than most texts take to be scanned.
var forPeople = strings.NewReplacer(maybe, "", anyName, "*", anyWord, "*", startDir, "$PWD", wild, "*", anyPath, "*")

// shown is a value as people are shown it.
func shown(s string) string { return forPeople.Replace(s) }

// exact reports whether s says to the letter what it is.
func exact(s string) bool { return !strings.ContainsAny(s, loose) }

// place is the path that s says or, not to the letter, the directory below which it is.
func place(s string) (to string, exact, ok bool) {
	s = sure(s)
	if rest, started := strings.CutPrefix(s, startDir); started {
		if rest != "" && rest[0] != '/' {
			return "", false, false
		}
		if s = strings.TrimLeft(rest, "/"); s == "" {
			return ".", true, true
		}
	}
	if strings.Contains(s, startDir) {
		return "", false, false
	}
	if strings.HasPrefix(s, "~") {
		s = "./" + s
	}
	i := strings.IndexAny(s, loose)
	if i < 0 {
		return s, true, true
	}
	dir := strings.LastIndexByte(s[:i], '/') + 1
	for part := range strings.SplitSeq(s[dir:], "/") {
		if part == ".." || strings.HasPrefix(part, ".") && strings.Contains(part, wild) {
			return "", false, false // it leads back, or may
		}
	}
	if dir == 0 {
		return ".", false, true
	}
	return s[:dir], false, true
}
