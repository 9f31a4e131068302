package exec

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/toold/toold/internal/wire"
)

// allBytes are all that a command can hold.
func allBytes() string {
	var b strings.Builder
	for i := 1; i < 256; i++ {
		b.WriteByte(byte(i))
	}
	return b.String()
}

// sameCommands are commands by which a program could tell a shell that has waited
// from one that has not. (What differs is said in the package comment.)
var sameCommands = []string{
	"true", "false", ":", "exit 3", "echo out; echo err >&2",
	`echo "[$-][$0][$_][$SHLVL][$BASH_EXECUTION_STRING][$((SECONDS < 60))][$LINENO][$?][$!][$PPID][$#][$@]"; echo $LINENO`,
	`((x = $$ == BASHPID)); echo $x $BASH_SUBSHELL "${PIPESTATUS[@]}" "${BASH_ARGC[@]}" "${BASH_ARGV[@]}" "$BASH_ARGV0" "$BASH_COMMAND" $HISTCMD $OPTIND $UID $EUID`,
	"set", "shopt -p", "set -o", "env | sort", "export -p", "declare -p", "declare -F", "readonly -p", "alias", "trap -p", "hash", "jobs", "history",
	"enable -p", "dirs", "complete -p", "ulimit -a", "ulimit -aH", "umask", "pwd; pwd -P; echo $PWD $OLDPWD",
	`readlink /proc/self/fd/*`, `readlink /proc/$$/fd/*`, `cat /proc/$$/fdinfo/[012]`,
	"grep -v -e ^Vm -e ^Rss -e ctxt -e Pid: -e Tgid -e ^NS -e ^Hugetlb -e ^Cpus -e ^Mems -e ^SigQ /proc/self/status",
	"grep -v -e ^Vm -e ^Rss -e ctxt -e Pid: -e Tgid -e ^NS -e ^Hugetlb -e ^Cpus -e ^Mems -e ^SigQ /proc/$$/status",
	"cat /proc/self/limits", "cat /proc/$$/cgroup", "cat /proc/$$/oom_score_adj /proc/$$/coredump_filter /proc/$$/timerslack_ns",
	`set -- $(sed 's/.*) //' /proc/$$/stat); echo $(($3 == $$)) $(($4 == $$)) $5 $6 ${16} ${17}`,
	"tr '\\0' '\\n' < /proc/$$/environ | grep .", "tr '\\0' '\\n' < /proc/$$/cmdline | grep . | sort",
	"readlink /proc/$$/exe /proc/$$/cwd /proc/$$/root", "cat", "read x; echo $?",
	"nosuchcommand", "nosuchcommand; echo $?", "/nosuch/file", ". nosuch", "cd /nosuch", "exec nosuch", "exec /dev/null",
	"echo a\necho b\nif then", "echo 'open", "echo (", "case x in", "$(", "`", "echo ${x", "<<E\nopen", "for",
	"set -u\necho $nix\necho on", "echo ${x?gone}; echo on", "set -e; false; echo on", "readonly x=1; x=2; echo on",
	"\n\n\nnosuch\n echo $LINENO\n\n f() { nosuch; }\nf",
	"kill -9 $$", "kill -TERM $$", "sh -c 'kill -9 $$'", "true; sh -c 'kill -11 $$'", "sh -c 'kill -9 $$'; echo $?",
	"cat <<E\n$0 $BASH_EXECUTION_STRING\nE", "cat <<'E'\n$0\nE\necho x", "cat <<<here",
	"sleep 0.01 & wait $!; echo $?", "sleep 0.01 & wait; jobs", "(exit 7) & wait $!; echo $?", "false | true | false; echo ${PIPESTATUS[@]}",
	"trap 'echo bye $?' EXIT; false", "trap 'echo debug $BASH_COMMAND $LINENO' DEBUG; true", "trap 'echo err' ERR; false", "trap 'echo term' TERM; kill $$; echo on",
	"f() { caller; caller 0; echo ${FUNCNAME[@]} ${BASH_SOURCE[@]} ${BASH_LINENO[@]}; }; f\n", "echo ${FUNCNAME[@]} ${BASH_SOURCE[@]} ${BASH_LINENO[@]}; caller",
	"return 3; echo on", "break; continue; local x; shift; logout; suspend", "set -x; echo a; x=1", "set -v\necho a\necho b",
	"exec 3>&1; echo x >&3; ls /proc/$$/fd", "echo x >&3", "exec >/dev/null; echo no", "bash -c 'env; echo $_' | sort | grep -v ^_=", "exec bash --norc -c 'echo $0 $SHLVL'",
	"printf '%q\n' \"$BASH_EXECUTION_STRING\" '' '\x01\x7f\xff'", "echo \xc3\xa9 \xe9 \xff\xfe | od -c", "echo a\r\necho b\r\n", "echo it\\'s '\"' \"'\"",
	"echo " + strings.NewReplacer("(", "", ")", "", "'", "", "\"", "", "`", "", "<", "", ">", "", "&", "", ";", "", "|", "", "\n", "").Replace(allBytes()) + " | od -c",
	": '" + strings.ReplaceAll(allBytes(), "'", "") + `'; printf %s "$BASH_EXECUTION_STRING" | md5sum`,
	": " + strings.Repeat("'", maxGiven-1-len(": ")) + "x", "# " + strings.Repeat("x", maxGiven-len("# ")), "echo " + strings.Repeat("y", maxGiven-len("echo ")),
	"! true", "!", "{ echo; }", "time -p true 2>/dev/null; echo $TIMEFORMAT", "[[ -t 0 || -t 1 ]]; echo $?", "shopt login_shell; echo $BASHOPTS $SHELLOPTS",
	"unset BASH_ENV; echo $BASH_ENV; BASH_ENV=/dev/fd/9 bash -c 'echo inner'", "echo $((SECONDS < 60)); SECONDS=500; echo $((SECONDS / 100))", "tty; stty 2>&1 | head -1", "type -a cd test",
	"unshare -U true", "exit 125", "compgen -v | sort", "echo $RANDOM$SRANDOM$EPOCHSECONDS | tr -d 0-9", "ls -di . | sed 's/ .*//'; stat -c %i $PWD",
}

var (
	// varying is what differs between any two shells, lazy the variables whose
	// value bash makes when they are used for the first time: a listing shows which
	// have been.
	varying = regexp.MustCompile(`call-\d+|\b\d{3,}\b`)
	lazy    = regexp.MustCompile(`(?m)^(declare -\S+ )?(BASH_ARGC|PIPESTATUS|SECONDS|EPOCHREALTIME|RANDOM|SRANDOM|EPOCHSECONDS|BASHPID)\b.*\n`)
)

func comparable(out string) string {
	return varying.ReplaceAllString(lazy.ReplaceAllString(out, ""), "#")
}

// longPIDs uses up process ids until the next ones have the three digits by which
// they are told from other numbers. The kernel does not come back below 300.
func longPIDs(t *testing.T) {
	t.Helper()
	for {
		cmd := exec.Command("true")
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		if cmd.Process.Pid >= 300 {
			return
		}
	}
}

// The shells differ in the order of their options, with which no shell is started
// ahead.
func TestWaitingShellIsTheSame(t *testing.T) {
	longPIDs(t)
	waits := newRig(t, nil)
	fresh := newRig(t, func(h *wire.Hello) {
		h.Worktree, h.Home, h.Env[1] = waits.dir, waits.dir, "HOME="+waits.dir
		h.Shell = []string{"/bin/bash", "--norc", "--noprofile"}
	})
	waits.bash("true")
	for _, command := range sameCommands {
		got, o := waits.given(command)
		want, p := fresh.bash(command)
		got, want = comparable(got), comparable(want)
		if got != want {
			t.Errorf("%.80q says\n%.3000q\nfresh\n%.3000q", command, got, want)
		}
		if o.Exit.Code != p.Exit.Code || o.Exit.Signal != p.Exit.Signal || o.Exit.Reason != p.Exit.Reason || o.Exit.BackgroundKilled != p.Exit.BackgroundKilled {
			t.Errorf("%.80q ended with %+v, fresh %+v", command, o.Exit, p.Exit)
		}
		if o.Result.Output != p.Result.Output {
			t.Errorf("%.80q: result %q, fresh %q", command, o.Result.Output, p.Result.Output)
		}
	}
	if w := fresh.waiting(); w != nil {
		t.Error("a shell waits that was to be fresh")
	}
}
