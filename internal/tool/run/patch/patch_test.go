package patch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// asIs is where paths lead in a tree without links.
func asIs(path string) string { return path }

// apply applies a patch to a tree of files.
func apply(ctx context.Context, text string, tree map[string]string) (map[string]string, error) {
	files, err := Parse(text)
	if err != nil {
		return nil, err
	}
	old := make(map[string]Old)
	for _, p := range Paths(files) {
		content, exists := tree[p]
		old[p] = Old{Exists: exists, Content: []byte(content)}
	}
	changes, err := Plan(ctx, files, asIs, old)
	if err != nil {
		return nil, err
	}
	out := maps.Clone(tree)
	for _, c := range changes {
		if delete(out, c.Path); !c.Remove {
			out[c.Path] = string(c.Content)
		}
	}
	return out, nil
}

// TestCases: each file of testdata/cases is a patch, the files before it, and those after
// it or a part of the error.
func TestCases(t *testing.T) {
	cases, err := filepath.Glob("testdata/cases/*.txtar")
	if err != nil || len(cases) < 40 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, name := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			old, want, patch, refused := map[string]string{}, map[string]string{}, "", ""
			for _, f := range txtar.Parse(raw).Files {
				data := string(f.Data)
				switch dir, rest, _ := strings.Cut(f.Name, "/"); dir {
				case "old":
					old[rest] = data
				case "new":
					want[rest] = data
				case "patch":
					patch = data
				case "error":
					refused = strings.TrimSpace(data)
				}
			}
			expect(t, patch, old, want, refused)
			if refused == "" && !strings.Contains(patch, "GIT binary") {
				expect(t, strings.ReplaceAll(patch, "\n", "\r\n"), old, want, "") // by a client of another system
			}
		})
	}
}

func expect(t *testing.T, patch string, old, want map[string]string, refused string) {
	t.Helper()
	got, err := apply(t.Context(), patch, old)
	if refused != "" {
		text := fmt.Sprint(err)
		if m, ok := errors.AsType[*MismatchError](err); ok && len(m.Nearest) > 0 {
			text += fmt.Sprintf(" lines %d-%d", m.Nearest[0].Line, m.Nearest[0].Line)
		}
		if err == nil || !strings.Contains(text, refused) {
			t.Errorf("got %v, %v; want %q", got, text, refused)
		}
		return
	}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func update(lines ...string) string {
	return "*** Begin Patch\n*** Update File: f\n@@\n" + strings.Join(lines, "\n") + "\n*** End Patch"
}

// Endings, byte order mark and the last newline stay as they are.
func TestKept(t *testing.T) {
	for _, tt := range []struct{ name, patch, old, want string }{
		{"crlf", update("-b", "+x", "+y"), "a\r\nb\r\nc\r\n", "a\r\nx\r\ny\r\nc\r\n"},
		{"mixed", update(" b", "+x", " c"), "a\nb\r\nc\nd\n", "a\nb\r\nx\r\nc\nd\n"},
		{"crlf at the top", update("-a", "+x"), "a\r\nb\r\n", "x\r\nb\r\n"},
		{"no last newline", update("-b", "+x"), "a\nb", "a\nx"},
		{"insertion behind one without", update("+x"), "a\nb", "a\nb\nx"},
		{"bom", update("-a", "+x"), "\ufeffa\nb\n", "\ufeffx\nb\n"},
		{"bom and context", update(" a", "-b", "+x"), "\ufeffa\nb\n", "\ufeffa\nx\n"},
		{"emptied", update("-a"), "a\n", ""},
		{"filled", update("+a"), "", "a\n"},
		{"diff for an lf file on crlf", "--- f\n+++ f\n@@ -1,2 +1,3 @@\n a\n-b\n+x\n+y\n", "a\r\nb\r\n", "a\r\nx\r\ny\r\n"},
		{"diff takes the newline", "--- f\n+++ f\n@@ -1,2 +1,2 @@\n a\n-b\n+b\n\\ No newline at end of file\n", "a\nb\n", "a\nb"},
		{"diff gives the newline", "--- f\n+++ f\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n", "a\nb", "a\nb\n"},
		{"diff changes endings", "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\r\n+b\n", "a\nb\r\n", "a\nb\n"},
		{"diff takes the mark", "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-\ufeffa\n+a\n b\n", "\ufeffa\nb\n", "a\nb\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			expect(t, tt.patch, map[string]string{"f": tt.old}, map[string]string{"f": tt.want}, "")
		})
	}
}

// A hunk whose lines stand at two places of the same level changes neither, in each form of
// patch, unless text behind "@@", the end of the file or a number decides.
func TestTwoPlaces(t *testing.T) {
	const old = "def a():\n    return 1\n\ndef b():\n    return 1\n"
	const first, second = "def a():\n    return 2\n\ndef b():\n    return 1\n", "def a():\n    return 1\n\ndef b():\n    return 2\n"
	const lines = "-    return 1\n+    return 2\n"
	envelope := func(hunk string) string {
		return "*** Begin Patch\n*** Update File: f\n" + hunk + "*** End Patch"
	}
	for _, tt := range []struct{ name, patch, old, want, refused string }{
		{"bare", envelope("@@\n" + lines), old, "", "at line 2 and at line 5"},
		{"without a mark", envelope(lines), old, "", "at line 2 and at line 5"},
		{"by blanks around", envelope("@@\n-return 1\n+return 2\n"), old, "", "at line 2 and at line 5"},
		{"a blank line behind", envelope("@@\n" + lines + "\n"), "    return 1\nx\n    return 1\ny\n", "", "at line 1 and at line 3"},
		{"below the hunk before", envelope("@@\n-def a():\n+def c():\n@@\n" + lines), old, "", "at line 2 and at line 5"},
		{"anchor", envelope("@@ def b():\n" + lines), old, second, ""},
		{"end of file", envelope("@@\n" + lines + "*** End of File\n"), old, second, ""},
		{"context", envelope("@@\n def b():\n" + lines), old, second, ""},
		{"a stricter level decides", envelope("@@\n-return 1\n+return 2\n"), "    return 1\nreturn 1\n", "    return 1\nreturn 2\n", ""},
		{"number", envelope("@@ -5,1 +5,1 @@\n" + lines), old, second, ""},
		{"unified", "--- a/f\n+++ b/f\n@@ -2,1 +2,1 @@\n" + lines, old, first, ""},
		{"git's", "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -4,1 +4,1 @@\n" + lines, old, second, ""},
		{"as many hunks as places", envelope("@@\n" + lines + "@@\n" + lines), old, "def a():\n    return 2\n\ndef b():\n    return 2\n", ""},
		{"more places than hunks", envelope("@@\n" + lines + "@@\n" + lines), old + old, "", "at line 2 and at line 7"},
		{"as many as equally far", "--- a/f\n+++ b/f\n@@ -3,1 +3,1 @@\n-x\n+y\n@@ -3,1 +3,1 @@\n-x\n+y\n", "a\nx\nb\nx\n", "a\ny\nb\ny\n", ""},
		{"an anchor that is there twice", envelope("@@ class A:\n" + lines), "class A:\n    return 1\nclass A:\n    return 1\n", "", "at line 2 and at line 4"},
		{"an anchor that is there twice, above the same", envelope("@@ class A:\n" + lines), "class A:\nclass A:\n    return 1\n", "class A:\nclass A:\n    return 2\n", ""},
		{"new lines below an anchor that is there twice", envelope("@@ class A:\n+x\n"), "class A:\nclass A:\n", "", "at line 2 and at line 3"},
		{"anchors below one another", envelope("@@ class B:\n@@ def a():\n" + lines), "class A:\n" + old + "class B:\n" + old, "class A:\n" + old + "class B:\n" + first, ""},
		{"a hunk behind decides", envelope("@@\n" + lines + "@@\n-def b():\n+def c():\n"), old, "def a():\n    return 2\n\ndef c():\n    return 1\n", ""},
		{"unified, equally far", "--- a/f\n+++ b/f\n@@ -3,1 +3,1 @@\n-x\n+y\n", "a\nx\nb\nx\n", "", "at line 2 and at line 4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			expect(t, tt.patch, map[string]string{"f": tt.old}, map[string]string{"f": tt.want}, tt.refused)
		})
	}
}

func TestBounds(t *testing.T) {
	var b strings.Builder
	for i := range MaxFiles + 1 {
		fmt.Fprintf(&b, "*** Delete File: %d\n", i)
	}
	for _, tt := range []struct{ patch, want string }{
		{"*** Begin Patch\n" + b.String() + "*** End Patch", "names 101 paths; the limit is 100"},
		{"*** Begin Patch\n*** Delete File: a\x00b\n*** End Patch", "has a NUL byte"},
		{"*** Begin Patch\n*** Delete File: " + strings.Repeat("a", 5000) + "\n*** End Patch", "has 5000 bytes; the limit is 4095"},
		{"", "it is no patch"},
	} {
		if _, err := Parse(tt.patch); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %q", err, tt.want)
		}
	}
	// A file of equal lines, and hunks that are nowhere in it, take bounded time.
	hunk := strings.Repeat(" a\n", 5000) + "-b\n+c\n"
	patch := "*** Begin Patch\n*** Update File: f\n@@\n" + hunk + "*** End Patch"
	_, err := apply(t.Context(), patch, map[string]string{"f": strings.Repeat("a\n", 1<<17)})
	if err == nil || !strings.Contains(err.Error(), "too many comparisons") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := apply(ctx, update("-b", "+c"), map[string]string{"f": "a\n"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// FuzzParse: no text makes it panic, and what it takes can be applied to something.
func FuzzParse(f *testing.F) {
	cases, _ := filepath.Glob("testdata/cases/*.txtar")
	for _, name := range cases {
		raw, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		a := txtar.Parse(raw)
		f.Add(string(a.Files[0].Data), "1\n2\n3\n")
	}
	f.Fuzz(func(t *testing.T, text, old string) {
		files, err := Parse(text)
		if err != nil {
			if _, ok := errors.AsType[*SyntaxError](err); !ok {
				t.Fatalf("%T", err)
			}
			return
		}
		paths := Paths(files)
		if len(paths) == 0 || len(paths) > MaxFiles {
			t.Fatalf("%d paths", len(paths))
		}
		all := make(map[string]Old)
		for _, p := range paths {
			all[p] = Old{Exists: true, Content: []byte(old)}
		}
		changes, err := Plan(t.Context(), files, asIs, all)
		if err != nil {
			return
		}
		for _, c := range changes {
			if _, known := all[c.Path]; !known {
				t.Errorf("changes %q, which it does not name", c.Path)
			}
		}
	})
}

// TestAddedAgain: what is added in the place of a deleted file is a change whatever the file was, so that
// the answer says nothing of a file that may not be read.
func TestAddedAgain(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"guess\n", "other\n"} {
		files, err := Parse("*** Begin Patch\n*** Delete File: k\n*** Add File: k\n+guess\n*** End Patch")
		if err != nil {
			t.Fatal(err)
		}
		same := func(path string) string { return path }
		changes, err := Plan(t.Context(), files, same, map[string]Old{"k": {Exists: true, Content: []byte(content)}})
		if err != nil || len(changes) != 1 || string(changes[0].Content) != "guess\n" {
			t.Errorf("of %q: %+v, %v", content, changes, err)
		}
	}
}
