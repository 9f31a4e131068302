package shell

import (
	"slices"
	"strings"
)

// resolve lists the path that w stands for, in each directory in which the shell
// may be.
func (c *scanner) resolve(d dirs, text string, w word, write bool) {
	if !write && w.isPipe() {
		return
	}
	name, known := c.literal(w)
	if !known {
		c.path(Path{Text: text}, write)
		return
	}
	if name == "" {
		return // no file has this name
	}
	names := d.names(name)
	if names == nil && d.lost {
		c.path(Path{Text: text}, write)
	}
	for _, n := range names {
		c.path(Path{Text: text, Name: n}, write)
	}
}

// literal is the path that a word names: itself, or for one with wildcards the
// directory below which all is that it can match.
func (c *scanner) literal(w word) (string, bool) {
	value := w.value
	if w.tilde {
		rest := strings.TrimPrefix(value, "~")
		if c.home == "" || rest != "" && rest[0] != '/' {
			return "", false // another user's home, or ~+ and ~-
		}
		value = c.home + rest
	} else if strings.HasPrefix(value, "~") {
		if prefix, _, _ := strings.Cut(w.text, "/"); strings.Contains(prefix, "{") {
			return "", false // lists come before homes
		}
		value = "./" + value
	}
	if w.fixed {
		return value, true
	}
	if !w.pattern || w.node == nil {
		return "", false
	}
	return belowPattern(value, w.text)
}

// belowPattern is the directory in which a word with wildcards begins to be a
// pattern. What follows must not lead out of it.
func belowPattern(value, text string) (string, bool) {
	i := strings.IndexAny(text, "*?[{")
	if i < 0 || strings.ContainsAny(text[i:], `\'"`) {
		return "", false
	}
	after := text[i:]
	for _, escape := range []string{"..", "{/", ",/", "{~", ",~"} {
		if strings.Contains(after, escape) {
			return "", false
		}
	}
	dir := value[:strings.LastIndexByte(value, '/')+1]
	if dir == "" {
		if strings.HasPrefix(after, "{") && strings.Contains(after, ",}") {
			return "", false
		}
		return ".", true
	}
	return dir, true
}

// pathArguments lists the arguments of k that name files: those that look like paths, for programs that work on files all
// but patterns and scripts, and of others, but for those that only print them, each that may be the name of a link.
func (c *scanner) pathArguments(k *call) {
	if len(k.args) == 0 || !k.args[0].fixed {
		return
	}
	name := systemName(k.args[0].value)
	if speakers[name] {
		for _, w := range k.args[1:] {
			listing(c, k.dirs, w)
		}
		return
	}
	if strings.Contains(k.args[0].value, "/") && name == k.args[0].value {
		c.resolve(k.dirs, k.args[0].text, k.args[0], false) // the program itself
	}
	plain := fileCommands[name]
	if _, comes := comes[name]; k.more && (plain || comes || name == "dd") || comesTo(name, k.args[1:]) {
		c.path(Path{Text: k.args[0].text + " …", Weak: true}, false)
	}
	pattern, skip := takesPattern[name] // skip: the first operand
	value := false                      // the next word is that of an option, and no file
	options, table := true, fileOptions[name]
	k.told = k.told || name == "curl" || name == "wget" // what else they are given are addresses
	for i, w := range k.args[1:] {
		switch {
		case value:
			value, skip = false, skip && !w.many
		case i+1 < k.code && w.fixed && isShellOption(w.value): // how to read the script
		case options && w.fixed && w.value == "--":
			options = false
		case options && strings.HasPrefix(w.value, "-") && len(w.value) > 1:
			if name == "find" && !leadsFind(w.value) {
				plain, k.told = false, true // what follows are tests
			}
			c.optionPath(k, w, table != nil)
			if table != nil {
				optionFile(c, k, i+1, table)
			}
			if pattern.givenBy(w.value) {
				skip = false // all operands are files
			}
			value = pattern.hasValue(w.value)
		case i+1 == k.code: // a script
		case skip:
			skip = false
		default:
			c.argumentPath(k, w, plain)
		}
	}
}

// leadsFind reports whether an option of find may stand before the directories in which it looks.
func leadsFind(o string) bool {
	return o == "-L" || o == "-H" || o == "-P" || o == "-D" || strings.HasPrefix(o, "-O")
}

// listing lists the directory which the shell looks into for a word with wildcards, whatever becomes of the
// names that it finds there.
func listing(c *scanner, d dirs, w word) {
	if w.pattern && looksLikePath(w) {
		c.resolve(d, w.text, w, false)
		if i := strings.IndexAny(w.text, "*?[{"); i >= 0 && strings.Contains(w.text[i:], "/") {
			matched(c, w)
		}
	}
}

// matched lists what links lead to whose names are among those that a word with wildcards stands for.
func matched(c *scanner, w word) {
	if _, known := c.literal(w); known && w.pattern {
		c.path(Path{Text: w.text, Weak: true, Matched: true}, false)
	}
}

// coming are the options by which a program comes to files that its arguments do not name.
type coming struct {
	letters, long string // of each; long ones stand with a "-" or two and apart from each other
	always        bool   // without any
	first         bool   // its first argument may be letters without a "-"
}

// comes are those options, by program: they make it follow the links that it finds in directories, or read names from a file.
var comes = func() map[string]coming {
	all := make(map[string]coming)
	for names, how := range map[string]coming{
		"find": {long: "-L -follow -files0-from"}, "ls dir vdir": {letters: "LH", long: "--dereference"}, "du": {letters: "LDH", long: "--dereference --dereference-args --files0-from"},
		"grep egrep fgrep": {letters: "R", long: "--dereference-recursive"}, "rg fd fdfind": {letters: "L", long: "--follow"}, "ag": {letters: "f", long: "--follow"}, "ack": {letters: "x", long: "--follow --files-from"},
		"cp": {letters: "LH", long: "--dereference"}, "tar": {letters: "hT", long: "--dereference --files-from", first: true}, "bsdtar": {letters: "LHhT", long: "--dereference --files-from", first: true},
		"rsync": {letters: "Lk", long: "--copy-links --copy-dirlinks --copy-unsafe-links --files-from"}, "tree": {letters: "l"}, "scp": {letters: "r"}, "zip": {letters: "r@", long: "--recurse-paths --names-stdin"},
		"cpio 7z": {always: true}, "diff": {letters: "r", long: "--recursive"}, "chown chgrp chmod getfacl setfacl": {letters: "LH"}, "sort wc": {long: "--files0-from"}, "file": {letters: "f", long: "--files-from"},
		"md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum shasum": {letters: "c", long: "--check"}, "xz": {long: "--files --files0"}, "curl": {letters: "K", long: "--config"}, "wget": {letters: "i", long: "--input-file"},
	} {
		for name := range strings.FieldsSeq(names) {
			all[name] = how
		}
	}
	return all
}()

// comesTo reports whether a program comes to files that these arguments do not name.
func comesTo(name string, args []word) bool {
	how, known := comes[name]
	return known && (how.always || slices.ContainsFunc(args, func(w word) bool {
		if !strings.HasPrefix(w.value, "-") {
			return how.first && w.start == args[0].start && strings.ContainsAny(w.value, how.letters)
		}
		option, _, _ := strings.Cut(w.value, "=")
		for o := range strings.FieldsSeq(how.long) {
			if option == o || strings.HasPrefix(o, "--") && len(option) > 2 && strings.HasPrefix(o, option) {
				return true
			}
		}
		return !strings.HasPrefix(w.value, "--") && strings.ContainsAny(w.value, how.letters)
	}))
}

// argumentPath lists an argument that is no option, if it names a file: plain
// words do for some programs.
func (c *scanner) argumentPath(k *call, w word, plain bool) {
	if isSetting(w.text) {
		c.valuePath(k, w)
	}
	switch {
	case plain, looksLikePath(w) && !isSetting(w.text):
		c.resolve(k.dirs, w.text, w, false)
		if plain {
			matched(c, w)
		}
	default:
		mayBeLink(c, k, w)
	}
	within(c, k, w, 0, plain)
}

// maxName bounds the name of a file, in bytes, as Linux does.
const maxName = 255

// mayBeLink lists what does not look like a path, of a program of which it is not known what it takes: a link may be
// called so that leads anywhere. Where it is not known in which directory, it may be any file, unless a file or a text is run
// in the shell: what that does nobody knows anyway.
func mayBeLink(c *scanner, k *call, w word) {
	if k.told {
		return
	}
	if !w.fixed {
		for _, value := range braced(w) {
			mayBeLink(c, k, word{text: w.text, value: value, fixed: true})
		}
		return
	}
	if w.value == "" || len(w.value) > maxName || isURL(w.value) {
		return
	}
	if k.dirs.lost && !c.facts.evaluated {
		c.path(Path{Text: k.args[0].text + " …", Weak: true}, false)
	}
	for _, dir := range k.dirs.list {
		c.facts.link(w.text, dir, w.value)
	}
}

// braced are the words that w stands for, if that is one list in braces of words without quotes.
func braced(w word) []string {
	before, rest, _ := strings.Cut(w.text, "{")
	list, after, closed := strings.Cut(rest, "}")
	if !w.pattern || !closed || !strings.Contains(list, ",") || strings.ContainsAny(w.text, "\\'\"*?[") || strings.ContainsAny(list+after, "{}") {
		return nil
	}
	all := strings.Split(list, ",")
	for i := range all {
		all[i] = before + all[i] + after
	}
	return all
}

// within lists what is named within a value, the part of w from a byte of it on: behind a "@", as options and arguments of
// many programs have it, and in a URL. all: also what does not look like a path.
func within(c *scanner, k *call, w word, from int, all bool) {
	value := w.value[min(from, len(w.value)):]
	rest := word{text: w.text, fixed: w.fixed}
	if file, is := strings.CutPrefix(value, "@"); is && (file != "" || !w.fixed) {
		if rest.value = file; all || !w.fixed || looksLikePath(rest) {
			c.resolve(k.dirs, w.text, rest, false)
		} else {
			mayBeLink(c, k, rest)
		}
	}
	if !strings.Contains(value, ":/") {
		return
	}
	if at := strings.Index(strings.ToLower(value), "file:/"); at >= 0 {
		// A program may read wildcards and escapes in it by itself.
		file := value[at+len("file:"):]
		if host, is := strings.CutPrefix(file, "//"); is {
			_, file, _ = strings.Cut(host, "/")
			file = "/" + file
		}
		rest.value, rest.fixed = file, w.fixed && !strings.ContainsAny(file, "%{}[]?#*")
		c.resolve(k.dirs, w.text, rest, false)
	}
}

// isSetting reports whether s is an argument such as of=FILE.
func isSetting(s string) bool {
	for i := range len(s) {
		switch b := s[i]; {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', b == '_':
		case i > 0 && ('0' <= b && b <= '9' || b == '.' || b == '-'):
		default:
			return i > 0 && b == '='
		}
	}
	return false
}

// optionPath lists the path in --option=path and -Ipath. listed: its letters that have a file are in a table.
func (c *scanner) optionPath(k *call, w word, listed bool) {
	if strings.Contains(w.text, "=") {
		c.valuePath(k, w)
		return
	}
	if strings.HasPrefix(w.value, "--") || !w.fixed && !strings.Contains(w.text, "/") {
		return
	}
	if len(w.value) > 2 && !listed {
		joined := w
		joined.value = w.value[2:]
		mayBeLink(c, k, joined)
	}
	if !w.fixed && !w.pattern {
		c.resolve(k.dirs, w.text, word{text: w.text}, false)
		return
	}
	// The path may begin right after the letter of the option, or later.
	if i := strings.IndexAny(w.value, "/.~"); i >= 2 && strings.Contains(w.value, "/") {
		rest := w
		rest.tilde = false
		rest.value = w.value[i:]
		c.resolve(k.dirs, w.text, rest, false)
		if i > 2 {
			rest.value = w.value[2:]
			c.resolve(k.dirs, w.text, rest, false)
		}
	}
}

// valuePath lists the path after the first "=" of a word.
func (c *scanner) valuePath(k *call, w word) {
	_, text, _ := strings.Cut(w.text, "=")
	rest := w
	if _, value, found := strings.Cut(w.value, "="); found {
		rest.value, rest.tilde = value, tildeHolds(text)
	} else {
		rest.fixed, rest.pattern = false, false
	}
	rest.text = text
	if strings.HasPrefix(w.value, "of=") || strings.HasPrefix(w.value, "if=") || looksLikePath(rest) {
		c.resolve(k.dirs, w.text, rest, false)
	} else {
		mayBeLink(c, k, rest)
	}
	if strings.HasPrefix(rest.value, "<") { // as curl has it
		rest.value = "@" + rest.value[1:]
	}
	within(c, k, rest, 0, false)
}

// looksLikePath reports whether an argument of an unknown program is taken for a
// path.
func looksLikePath(w word) bool {
	s := w.value
	if !w.fixed {
		s = strings.Trim(w.text, `"`)
	}
	if isURL(s) {
		return false
	}
	return strings.Contains(s, "/") || strings.HasPrefix(s, ".") || strings.HasPrefix(s, "~")
}

// isURL reports whether s is an address of the network, not of a file.
func isURL(s string) bool {
	scheme, _, found := strings.Cut(s, "://")
	if !found || scheme == "" || strings.EqualFold(scheme, "file") {
		return false
	}
	for i := range len(scheme) {
		if b := scheme[i]; (b < 'a' || b > 'z') && (b < 'A' || b > 'Z') && (b < '0' || b > '9') && b != '+' && b != '-' && b != '.' {
			return false
		}
	}
	return true
}

// patterned says of a program whose first operand is a pattern or a script which options are about it.
type patterned struct {
	givers string // letters that give it, or say that there is none, so that all operands are files
	values string // letters that have the next word, where nothing is joined to them, for the pattern or for what is no file
}

// givenBy reports whether an option may give the pattern, or say that there is none.
func (p patterned) givenBy(option string) bool {
	name, _, _ := strings.Cut(option, "=")
	if !strings.HasPrefix(option, "--") {
		return strings.ContainsAny(name, p.givers) // which letters have a value is another matter in each of them
	}
	return slices.ContainsFunc(givers, func(o string) bool { return len(name) > 2 && strings.HasPrefix(o, name) })
}

// givers are such options of any of them; they may be written shorter.
var givers = []string{"--regexp", "--expression", "--file", "--from-file", "--files"}

// hasValue reports whether the next word is the value of an option, and no file.
func (p patterned) hasValue(option string) bool {
	return len(option) == 2 && strings.IndexByte(p.values, option[1]) >= 0 || p.values != "" && (option == "--regexp" || option == "--expression")
}

var (
	// speakers only print their arguments.
	speakers = setOf("echo", "printf", ":", "true", "false", "exit", "return", "set", "kill", "sleep", "seq", "type", "which", "tr")

	grepLike = patterned{givers: "ef", values: "eABCmdD"}
	awkLike  = patterned{givers: "ef", values: "eFv"}

	// takesPattern have a pattern or a script as their first operand.
	takesPattern = map[string]patterned{
		"grep": grepLike, "egrep": grepLike, "fgrep": grepLike, "zgrep": grepLike, "rg": {"ef", "eABCEMTdgjmrt"}, "ag": {}, "ack": {givers: "f"},
		"sed": {"ef", "e"}, "awk": awkLike, "gawk": awkLike, "mawk": awkLike, "jq": {givers: "f"}, "yq": {givers: "f"},
	}

	// fileCommands take plain words for files, also such as are only known at run time.
	fileCommands = setOf(
		"cat", "tac", "head", "tail", "less", "more", "most", "nl", "od", "xxd", "hexdump", "hd", "strings", "file", "stat", "wc", "sort", "uniq", "cut", "paste", "join",
		"comm", "diff", "diff3", "sdiff", "cmp", "split", "csplit", "fold", "fmt", "pr", "expand", "unexpand", "shuf", "rev", "tsort", "ptx", "look", "column", "col", "colrm", "ul",
		"numfmt", "iconv", "dos2unix", "unix2dos", "base64", "base32", "basenc", "uuencode", "uudecode", "sum", "cksum", "md5sum", "b2sum", "sha1sum", "sha224sum", "sha256sum",
		"sha384sum", "sha512sum", "shasum", "openssl", "gpg", "gpgv",
		"ls", "dir", "vdir", "tree", "du", "cd", "chdir", "pushd", "cp", "mv", "rm", "rmdir", "mkdir", "ln", "touch", "tee", "install", "truncate",
		"chmod", "chown", "chgrp", "readlink", "realpath", "unlink", "link", "shred", "rsync", "scp", "tar", "bsdtar", "cpio", "ar", "zip", "unzip", "zipinfo", "7z",
		"gzip", "gunzip", "zcat", "zless", "zmore", "zcmp", "zdiff", "zgrep", "pigz", "bzip2", "bunzip2", "bzcat", "xz", "unxz", "xzcat", "lzma", "lz4", "lz4cat", "zstd", "unzstd", "zstdcat", "brotli",
		"grep", "egrep", "fgrep", "rg", "ag", "ack", "sed", "awk", "gawk", "mawk", "jq", "yq", "xmllint", "find", "bat", "batcat", "vi", "vim", "view", "nano", "ed", "patch",
		"nm", "objdump", "readelf", "objcopy", "strip", "size", "ldd", "pdftotext", "pandoc", "exiftool", "ffprobe", "identify",
	)
)
