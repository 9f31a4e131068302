package exec

import (
	"testing"

	"github.com/toold/toold/internal/wire"
)

// oddVariables are such as a shell reads when it starts, or holds to be its own:
// many that a waiting shell can have, and some with which none waits.
var oddVariables = [][]string{{
	"TZ=:/etc/nosuch", "LC_ALL=xx_XX.nosuch", "BASH_COMPAT=31", "RANDOM=1", "OPTIND=7", "OPTERR=0",
	"BASH_ARGV0=x", "GLOBIGNORE=*", "TMOUT=1", "FUNCNEST=1", "PWD=/nosuch", "OLDPWD=/nosuch", "SHLVL=x", "BASHPID=1",
	"UID=0", "HOSTNAME=x", "BASH=x", "BASH_COMMAND=x", "BASH_SUBSHELL=4", "EPOCHSECONDS=1", "PIPESTATUS=1",
	"FUNCNAME=x", "DIRSTACK=x", "GROUPS=x", "BASH_VERSION=x", "PPID=1", "EUID=0", "HISTCMD=x", "COMP_WORDBREAKS=x",
	"MAILCHECK=0", "HISTFILE=/nosuch", "CDPATH=/", "EXECIGNORE=*", "FIGNORE=x", "CHILD_MAX=10", "BASH_LOADABLES_PATH=/nosuch",
	"a.b=1", "x%%=() { echo odd; }", "COLUMNS=1", "SHELL=x", "TERM=x", "INSIDE_EMACS=x", "SSH_CLIENT=x", "PS2=x", "PROMPT_DIRTRIM=x", "LOCALDOMAIN=x",
}, {"BASH_XTRACEFD=3"}, {"LINENO=5"}, {"POSIX_PEDANTIC=1"}}

// A session's environment makes no difference between a shell that has waited and
// a fresh one.
func TestWaitingShellInAnOddEnvironment(t *testing.T) {
	for i, odd := range oddVariables {
		waits := newRig(t, func(h *wire.Hello) { h.Env = append(h.Env, odd...) })
		fresh := newRig(t, func(h *wire.Hello) {
			h.Worktree, h.Home, h.Env[1] = waits.dir, waits.dir, "HOME="+waits.dir
			h.Env = append(h.Env, odd...)
			h.Shell = []string{"/bin/bash", "--norc", "--noprofile"}
		})
		waits.bash("true")
		for _, command := range []string{
			"declare -p | grep -v -e BASH_EXEC -e BASH_COMMAND -e SRANDOM", `echo "[$-][$0][$_][$SHLVL][$BASH_EXECUTION_STRING][$((SECONDS < 60))][$LINENO][$?][$OPTIND][$BASH_COMMAND]"; nosuch`,
			"env | sort; echo *; date +%Z", "set -x; echo a; f() { g; }; g() { echo g; }; f", "echo x; ls /proc/$$/fd", "echo 'open",
		} {
			w := waits.waiting()
			got, o := waits.bash(command)
			want, p := fresh.bash(command)
			if given := w != nil && w.wasGiven(waits.shells); given != (i == 0) {
				t.Errorf("%.40q: that a waiting shell has run %.30q is %t", odd, command, given)
			}
			if got, want = comparable(got), comparable(want); got != want {
				t.Errorf("%.40q: %.80q says\n%.3000q\nfresh\n%.3000q", odd, command, got, want)
			}
			if o.Exit.Code != p.Exit.Code || o.Exit.Signal != p.Exit.Signal {
				t.Errorf("%.40q: %.80q ended with %+v, fresh %+v", odd, command, o.Exit, p.Exit)
			}
		}
	}
}
