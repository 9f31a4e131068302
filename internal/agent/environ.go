package agent

import (
	"strings"

	"github.com/toold/toold/internal/tool/run"
)

// refusedName reports whether a variable may never reach a tool: it would make a
// shell or the loader run code, or git use another repository or program.
func refusedName(name string) bool {
	return name == "BASH_ENV" || name == "ENV" ||
		strings.HasPrefix(name, "BASH_FUNC_") ||
		strings.HasPrefix(name, "LD_") ||
		strings.HasPrefix(name, "GIT_")
}

// checkEnv refuses variables that a call may not set.
func checkEnv(env []string) error {
	for _, kv := range env {
		name, _, ok := strings.Cut(kv, "=")
		switch {
		case !ok || name == "" || strings.IndexByte(kv, 0) >= 0:
			return run.Errorf(run.CodeInvalidInput, "environment: %.64q is not NAME=VALUE", kv)
		case refusedName(name):
			return run.Errorf(run.CodeInvalidInput, "environment: %s may not be set for tools", name)
		}
	}
	return nil
}

// mergeEnv is base with more over it; the last one of a name counts.
func mergeEnv(base, more []string) ([]string, error) {
	if err := checkEnv(more); err != nil {
		return nil, err
	}
	at := make(map[string]int, len(base)+len(more))
	env := make([]string, 0, len(base)+len(more))
	for _, list := range [2][]string{base, more} {
		for _, kv := range list {
			name, _, _ := strings.Cut(kv, "=")
			if i, ok := at[name]; ok {
				env[i] = kv
				continue
			}
			at[name] = len(env)
			env = append(env, kv)
		}
	}
	return env, nil
}
