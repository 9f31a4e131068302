package remark

import (
	"strings"
	"testing"
)

func TestLastSaying(t *testing.T) {
	for text, want := range map[string]string{
		"":                    "",
		"a\nb":                "",
		"No space LEFT":       "no space left",
		"x: no space left: y": "x: no space left: y",
		"no space left 1\nit is full\nno space left 2\n": "no space left 2",
		"no space left\n" + strings.Repeat("x", 16<<10):  "",
	} {
		if got := lastSaying(text, []string{"no space left"}); got != want {
			t.Errorf("%.40q: %q, want %q", text, got, want)
		}
	}
}
