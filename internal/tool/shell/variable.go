package shell

import (
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// assigned judges that the shell's variable called name gets a value, which the
// shell or the programs after it may act on.
func (f *findings) assigned(name string) {
	f.leads(name)
	switch {
	case !syntax.ValidName(name):
		f.opaque("%s is not the name of a variable", shorten(name))
	case steers(name):
		f.opaque("it sets %s, which changes what later commands do", name)
	case !private(name):
		f.opaque("it sets %s, which may be a variable of the environment", name)
	}
}

// leading are the variables by which the shell finds directories: what "~", "cd" and "popd" lead to.
var leading = []string{"HOME", "CDPATH", "OLDPWD", "PWD", "DIRSTACK"}

// leads notes that what text names may get a value, which is or has the names of variables.
func (f *findings) leads(text string) {
	notName := func(r rune) bool {
		return r != '_' && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}
	for name := range strings.FieldsFuncSeq(text, notName) {
		f.facts.astray = f.facts.astray || slices.Contains(leading, name)
	}
}

// leadsAny notes that variables may get values whose names are in words.
func (f *findings) leadsAny(words []word) {
	for _, w := range words {
		f.leads(w.value)
		f.facts.astray = f.facts.astray || !w.fixed
	}
}

// private reports whether programs do not look at the environment for name: by
// custom what they look at is in capitals.
func private(name string) bool {
	return name == strings.ToLower(name) && !steers(name)
}

// passed judges that programs get the variable called name with a value that is
// in the text or, without known, is not.
func (f *findings) passed(name, value string, known bool) {
	f.leads(name)
	if !known || !Harmless(name, value) {
		f.opaque("it sets %s, which may change what programs do", shorten(name))
	}
}

// harmless reports whether an assignment in front of a command is of a variable that leaves what the
// command does as its text says it.
func (c *scanner) harmless(a *syntax.Assign) bool {
	if a.Name == nil || !syntax.ValidName(a.Name.Value) {
		return false
	}
	value, known := c.value(a)
	return known && Harmless(a.Name.Value, value)
}

// value is what an assignment sets, as far as the text decides it.
func (c *scanner) value(a *syntax.Assign) (value string, known bool) {
	switch {
	case a.Append || a.Naked || a.Index != nil || a.Array != nil:
		return "", false
	case a.Value == nil:
		return "", true
	}
	w := c.word(a.Value)
	return w.value, w.fixed && !w.tilde
}

// Harmless reports whether a variable with this value, in the environment of any
// program, leaves what the program does as its command says it. What is not known
// to be so is not: no list of the variables that name a program, a library, a
// file or a server is ever complete.
func Harmless(name, value string) bool {
	for _, h := range harmlessVariables {
		if slices.Contains(h.names, name) {
			return h.values.MatchString(value)
		}
	}
	return false
}

// harmlessVariables are those that a call may set without being judged as a
// whole: those that change how a program writes, how much, for which machine. A
// value has no room for a path or for anything that is code where it is expanded.
// docs/policy.md has the same table.
var harmlessVariables = []struct {
	names  []string
	values *regexp.Regexp
	says   string // the values, in words
}{
	{
		// In another character set, the shell may read another text than is judged.
		[]string{"LANG", "LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME"},
		regexp.MustCompile(`^(C|POSIX|[A-Za-z_]+\.(UTF-8|utf8))?$`), "`C`, `POSIX`, or a locale that ends in `.UTF-8`",
	},
	{[]string{"TZ"}, regexp.MustCompile(`^([A-Za-z][A-Za-z0-9_+/-]*)?$`), "the name of a time zone"},
	{
		[]string{"TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES"},
		regexp.MustCompile(`^([A-Za-z0-9_.+][A-Za-z0-9_.+-]*)?$`), "letters, digits and `_.+-`, no `-` first",
	},
	{
		[]string{"CI", "DEBUG", "VERBOSE", "RUST_BACKTRACE", "RUST_LIB_BACKTRACE", "RUST_LOG", "GOTRACEBACK"},
		regexp.MustCompile(`^([A-Za-z0-9_.,:=*][A-Za-z0-9_.,:=*-]*)?$`), "letters, digits and `_.,:=*-`, no `-` first",
	},
	{
		[]string{"CGO_ENABLED", "GOARCH", "GOMAXPROCS", "GOOS", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "SOURCE_DATE_EPOCH"},
		regexp.MustCompile(`^[A-Za-z0-9]*$`), "letters and digits",
	},
}

// steers reports whether bash acts on a variable of this name by itself, or
// programs do where it is in their environment already.
func steers(name string) bool {
	return special[name] || slices.ContainsFunc(specialPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// specialPrefixes begin names of variables that make bash, the loader, git and
// others run code or find other programs.
var specialPrefixes = []string{"BASH", "LD_", "GIT_", "LC_", "COMP_", "HIST", "DYLD_", "GCONV_", "npm_config_", "NPM_CONFIG_", "CARGO_", "PYTHON", "PERL", "RUBY", "LUA_", "JAVA_", "MAVEN_", "GRADLE_", "MALLOC_", "GLIBC_", "SSH_"}

// special are further such variables, and those whose assignment bash itself
// evaluates or acts on.
var special = setOf(
	// of the shell
	"PATH", "IFS", "PS0", "PS1", "PS2", "PS3", "PS4", "ENV", "CDPATH", "GLOBIGNORE", "SHELLOPTS", "HOME", "PWD", "OLDPWD",
	"PROMPT_COMMAND", "PROMPT_DIRTRIM", "COMPREPLY", "COPROC", "DIRSTACK", "EPOCHREALTIME", "EPOCHSECONDS", "EUID", "EXECIGNORE",
	"FCEDIT", "FIGNORE", "FUNCNAME", "FUNCNEST", "GROUPS", "HOSTFILE", "HOSTNAME", "IGNOREEOF", "INPUTRC", "INSIDE_EMACS",
	"LANG", "LANGUAGE", "LINENO", "LINES", "COLUMNS", "MACHTYPE", "MAIL", "MAILCHECK", "MAILPATH", "MAPFILE", "OPTARG", "OPTERR",
	"OPTIND", "OSTYPE", "PIPESTATUS", "POSIXLY_CORRECT", "PPID", "RANDOM", "READLINE_LINE", "READLINE_POINT", "READLINE_MARK",
	"READLINE_ARGUMENT", "REPLY", "SECONDS", "SHELL", "SHLVL", "SRANDOM", "TEXTDOMAIN", "TEXTDOMAINDIR", "TIMEFORMAT", "TMOUT",
	"TMPDIR", "UID", "auto_resume", "histchars", "_",
	// of programs
	"PAGER", "MANPAGER", "EDITOR", "VISUAL", "BROWSER", "LESS", "LESSOPEN", "LESSCLOSE", "LESSEDIT", "LESSKEY", "LESSKEYIN",
	"NODE_OPTIONS", "NODE_PATH", "GOFLAGS", "GOROOT", "GOPATH", "GOENV", "CC", "CXX", "CPP", "AR", "MAKEFLAGS", "MFLAGS",
	"GNUMAKEFLAGS", "TAR_OPTIONS", "RSYNC_RSH", "SUDO_ASKPASS", "RUSTC", "RUSTC_WRAPPER", "RUSTFLAGS", "CLASSPATH",
	"_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "GREP_OPTIONS", "TERMINFO", "TERMCAP", "TERM", "NLSPATH", "LOCPATH", "RES_OPTIONS",
	"HOSTALIASES", "OPENSSL_CONF", "OPENSSL_MODULES", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "DOCKER_HOST", "DOCKER_CONFIG",
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy", "ftp_proxy", "no_proxy",
)

func setOf(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, n := range names {
		set[n] = true
	}
	return set
}
