package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// assigned judges that the shell's variable called name gets a value, which the
// shell or the programs after it may act on.
func (c *scanner) assigned(name string) {
	switch {
	case !syntax.ValidName(name):
		c.opaque("%s is not the name of a variable", shorten(name))
	case Steers(name):
		c.opaque("it sets %s, which changes what later commands do", name)
	case !private(name):
		c.opaque("it sets %s, which may be a variable of the environment", name)
	}
}

// private reports whether programs do not look at the environment for name: by
// custom what they look at is in capitals.
func private(name string) bool {
	return name == strings.ToLower(name) && !Steers(name)
}

// Steers reports whether the shell or programs may do something else than their
// text says when there is a variable of this name in their environment.
func Steers(name string) bool { return special[name] || hasAnyPrefix(name, specialPrefixes) }

func hasAnyPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
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
