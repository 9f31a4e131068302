package wire

import (
	"strings"

	"github.com/toold/toold/internal/tool/run"
)

// RefusedVariable reports whether a variable may never reach a tool, because with
// it a program does something else than its command line says: a shell or the
// loader runs code that it names, git uses another repository or program.
//
// SHELLOPTS and BASHOPTS switch on what a shell traces, and with PS4 a traced
// shell runs code before every command. Shells do not take IFS from their
// environment, as POSIX wants it; one that did would split every command line
// in other places, so that no call sets it for something good. The variables of git's that
// are let through name nothing: with the first git looks above a mount, as it does elsewhere,
// and with the second it does not bring its index up to date by the way.
func RefusedVariable(name string) bool {
	switch name {
	case "BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND", "IFS":
		return true
	}
	return strings.HasPrefix(name, "BASH_FUNC_") ||
		strings.HasPrefix(name, "LD_") ||
		strings.HasPrefix(name, "GIT_") && name != "GIT_DISCOVERY_ACROSS_FILESYSTEM" && name != "GIT_OPTIONAL_LOCKS"
}

// CheckEnv refuses variables that a call may not set.
func CheckEnv(env []string) error {
	for _, kv := range env {
		name, _, ok := strings.Cut(kv, "=")
		switch {
		case !ok || name == "" || strings.IndexByte(kv, 0) >= 0:
			return run.Errorf(run.CodeInvalidInput, "environment: %.64q is not NAME=VALUE", kv)
		case RefusedVariable(name):
			return run.Errorf(run.CodeInvalidInput, "environment: %s may not be set for tools", name)
		}
	}
	return nil
}
