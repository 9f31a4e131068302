package errand

import (
	"testing"

	"github.com/toold/toold/internal/hook"
)

func TestFormatLine(t *testing.T) {
	hk := &hook.Hook{Command: []string{"f"}}
	for _, file := range []string{"/workspace/\xff.go", "relative.go", ""} {
		if line, err := formatLine(hk, file); err == nil {
			t.Errorf("%q: %s", file, line)
		}
	}
	line, err := formatLine(hk, "/w/$(x)`y`\n\"z\"'")
	if want := "exec 'f' '/w/$(x)`y`\n\"z\"'\\''' </dev/null"; err != nil || line != want {
		t.Errorf("got %q, %v, want %q", line, err, want)
	}
}
