package run

import (
	"os"
	"strings"
	"testing"

	"github.com/toold/toold/internal/testrig/difftest"
)

// TestFormatted: a diff is given of what the model has seen, and makes the file as it
// is now seen; in all other cases there is a reason, and nothing is seen.
func TestFormatted(t *testing.T) {
	for _, tt := range []struct {
		name, before, now string
		seen              bool
		changed           bool
		why               string
	}{
		{"changed", "a\nb\n", "a\n\tb\n", true, true, ""},
		{"no newline at the end", "a\nb", "a\nb\n", true, true, ""},
		{"emptied", "a\n", "", true, true, ""},
		{"the same", "a\n", "a\n", true, false, ""},
		{"not seen", "a\n", "b\n", false, true, "something else before"},
		{"binary", "a\n", "\x7fELF\x02\x01", true, true, "not text"},
		{"NUL far behind", "a\n", strings.Repeat("x\n", 50_000) + "\x00", true, true, "not text"},
		{"not UTF-8", "a\n", strings.Repeat("x\n", 50_000) + "\xff", true, true, "not text"},
		{"a long diff", "a\n", strings.Repeat("line\n", 1000), true, true, "diff is long"},
		{"a long file", "a\n", strings.Repeat("x", MaxFormatted+1), true, true, "file is long"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env, dir := fileEnv(t)
			writeFile(t, dir+"/f", tt.now)
			if tt.seen {
				env.Seen.Note("/w/f", sha256Hex([]byte(tt.before)))
			}
			r := mustCall(t, env, Formatted{}, object{"file_path": "/w/f", "before": tt.before, "max_diff": 4000})
			why, _ := r.Metadata[FormattedWhy].(string)
			if r.IsError || r.Metadata[FormattedChanged] != tt.changed || !strings.Contains(why, tt.why) || (why == "") != (tt.why == "") || r.Metadata[FormattedPath] != "/w/f" {
				t.Errorf("%+v", r)
			}
			shown := tt.changed && tt.why == ""
			if now := env.Seen.Is("/w/f", sha256Hex([]byte(tt.now))); now != (shown || !tt.changed) {
				t.Errorf("seen: %t", now)
			}
			if !shown {
				if r.Output != "" {
					t.Errorf("shown: %q", r.Output)
				}
				return
			}
			if got, err := difftest.Apply(tt.before, r.Output); err != nil || got != tt.now {
				t.Errorf("the diff %q makes %q, %v", r.Output, got, err)
			}
		})
	}
}

// TestFormattedElsewhere: a path that leads elsewhere now is an error, as is a file that
// is gone.
func TestFormattedElsewhere(t *testing.T) {
	env, dir := fileEnv(t)
	writeFile(t, dir+"/secret", "s3cret\n")
	if err := os.Symlink("secret", dir+"/f"); err != nil {
		t.Fatal(err)
	}
	env.Seen.Note("/w/f", sha256Hex([]byte("a\n")))
	for _, name := range []string{"/w/f", "/w/none", "/w", "relative"} {
		if r, err := callTool(t, env, Formatted{}, object{"file_path": name, "before": "a\n", "max_diff": 4000}); err == nil && !r.IsError {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
