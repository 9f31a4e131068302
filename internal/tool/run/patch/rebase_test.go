package patch

import (
	"path"
	"strings"
	"testing"
)

// TestRename: paths move, and nothing else does.
func TestRename(t *testing.T) {
	t.Parallel()
	rename := func(p string) string {
		if p == "/repo" || strings.HasPrefix(p, "/repo/") {
			return path.Join("/w", p[len("/repo"):])
		}
		return p
	}
	for name, tt := range map[string]struct{ patch, want string }{
		"envelope": {
			"*** Begin Patch\n*** Update File: /repo/a\n*** Move to: /repo/d/b\n@@\n-x\n+*** Add File: /repo/c\n*** Delete File: /repo/e\n*** Add File: /repos/f\n+/repo/a\n*** End Patch",
			"*** Begin Patch\n*** Update File: /w/a\n*** Move to: /w/d/b\n@@\n-x\n+*** Add File: /repo/c\n*** Delete File: /w/e\n*** Add File: /repos/f\n+/repo/a\n*** End Patch",
		},
		"no blank, and several": {
			"*** Begin Patch\n*** Update File:/repo/a\n*** Move to:  /repo/b \n@@\n-x\n+y\n*** Delete File: /repo/c\n*** End Patch",
			"*** Begin Patch\n*** Update File:/w/a\n*** Move to:  /w/b \n@@\n-x\n+y\n*** Delete File: /w/c\n*** End Patch",
		},
		"unified": {
			"--- /repo/a\t2024-01-01\n+++ /repo/a\n@@ -1,2 +1,2 @@\n-x\n+y\n /repo/a\n",
			"--- /w/a\t2024-01-01\n+++ /w/a\n@@ -1,2 +1,2 @@\n-x\n+y\n /repo/a\n",
		},
		// The line that is removed, "-- /repo/x", looks like a header.
		"a line that is none": {"--- a\n+++ a\n@@ -1,2 +1,1 @@\n--- /repo/x\n y\n", ""},
		"nothing to move":     {"*** Begin Patch\n*** Delete File: a\n*** End Patch", ""},
		"no patch":            {"--- /repo/a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := Rename(tt.patch, rename)
			if want := tt.want; want != "" && (!ok || got != want) || want == "" && (ok || got != tt.patch) {
				t.Errorf("%v: %q", ok, got)
			}
			if crlf := strings.ReplaceAll(tt.patch, "\n", "\r\n"); tt.want != "" {
				if got, ok := Rename(crlf, rename); !ok || got != strings.ReplaceAll(tt.want, "\n", "\r\n") {
					t.Errorf("with CRLF: %v: %q", ok, got)
				}
			}
		})
	}
}
