package environ

import (
	"errors"
	"strings"
	"testing"

	"github.com/toold/toold/internal/fault"
)

// TestCheckPlaces: what is refused has the JSON pointer to it.
func TestCheckPlaces(t *testing.T) {
	t.Parallel()
	for want, env := range map[string]map[string]string{
		"/env": {"a b": "x"}, "/env/BASH_ENV": {"BASH_ENV": "x"}, "/env/NUL": {"NUL": "\x00"}, "/env/LONG": {"LONG": strings.Repeat("x", maxEnvValue+1)}, "/env/PATH": {"PATH": ":/bin"},
	} {
		f, ok := errors.AsType[*fault.Error](Check(env))
		if !ok || len(f.Places) != 1 || f.Places[0].Path != want {
			t.Errorf("%s: %+v", want, f)
		}
	}
}
