package run

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/testrig"
)

// portions are what ripgrep says of a file by itself: for each line with a part of a match,
// the first such part.
func portions(t *testing.T, ripgrep []string, file, pattern string) map[int]string {
	t.Helper()
	argv := append(append([]string{}, ripgrep...), "--no-config", "--json", "--multiline", "--multiline-dotall", "--regexp="+pattern, file)
	out, err := exec.Command(argv[0], argv[1:]...).Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) { // 1 is for no match
		t.Fatalf("%q: %v", argv, err)
	}
	found := map[int]string{}
	for line := range bytes.Lines(out) {
		var e struct {
			Type string
			Data struct {
				Lines      struct{ Text string }
				Number     int `json:"line_number"`
				Submatches []struct{ Start, End int }
			}
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		if e.Type != "match" {
			continue
		}
		at := 0
		for i, text := range strings.SplitAfter(e.Data.Lines.Text, "\n") {
			for _, m := range e.Data.Submatches {
				if from, to := max(m.Start, at), min(m.End, at+len(text)); from < to {
					found[e.Data.Number+i] = e.Data.Lines.Text[from:to]
					break
				}
			}
			at += len(text)
		}
	}
	return found
}

// TestGrepAcrossLongLines: of each line of a match across lines the part that matches is
// shown, however long the lines are, and however the matches follow each other.
func TestGrepAcrossLongLines(t *testing.T) { withRipgreps(t, testGrepAcrossLongLines) }

func testGrepAcrossLongLines(t *testing.T, env *Env) {
	r := rand.New(rand.NewPCG(4, 2))
	shownAt := regexp.MustCompile(`(?m)^  (\d+): (.*)$`)
	cut, far := 0, 0
	for round := range testrig.Rounds(20) {
		var b strings.Builder
		word := 0
		for range 12 {
			for range r.IntN(4) {
				b.WriteString(strings.Repeat("é-", []int{0, 1, 300, 900, 3100, 20_000}[r.IntN(6)]))
				word++
				fmt.Fprintf(&b, "%s%d ", []string{"BEG", "END", "x"}[r.IntN(3)], word)
			}
			b.WriteString([]string{"\n", "\n", "\r\n", " tail\n"}[r.IntN(4)])
		}
		b.WriteString("BEG END\n")
		tree(t, env.Worktree, map[string]string{"f": b.String()})
		for _, pattern := range []string{`BEG[^#]*?END\d*`, `BEG\d* ?\r?\n`, `BEG\d*`, `(?s)BEG.*?END`} {
			want := portions(t, env.Ripgrep, filepath.Join(env.Worktree, "f"), pattern)
			text, res := answer(t, env, Grep{}, object{"pattern": pattern, "path": "f", "multiline": true, "limit": 1000})
			if res.Metadata["truncated"] != false {
				t.Fatalf("round %d: %v", round, res.Metadata)
			}
			got := map[int]string{}
			for _, m := range shownAt.FindAllStringSubmatch(text, -1) {
				var n int
				_, _ = fmt.Sscan(m[1], &n)
				got[n] = m[2]
			}
			if len(got) != len(want) {
				t.Errorf("round %d, %s: %d lines are shown, ripgrep has %d", round, pattern, len(got), len(want))
			}
			for n, part := range want {
				part = strings.TrimRight(string([]rune(part)[:min(40, len([]rune(part)))]), "\r\n")
				if !strings.Contains(got[n], part) {
					t.Errorf("round %d, %s: line %d has no %q: %.60s … %s", round, pattern, n, part, got[n], got[n][max(0, len(got[n])-80):])
				}
				if strings.Contains(got[n], "(line cut") {
					cut++
				}
				if strings.Contains(got[n], "the match is at column") {
					far++
				}
			}
		}
	}
	if cut < 20 || far < 20 {
		t.Errorf("only %d lines are cut, %d with a match far from their beginning", cut, far)
	}
}

// TestGrepSameColumn: matches are shown where they are, also below each other in the same
// column.
func TestGrepSameColumn(t *testing.T) { withRipgreps(t, testGrepSameColumn) }

func testGrepSameColumn(t *testing.T, env *Env) {
	line := strings.Repeat("-", 30_000) + "NEEDLE" + strings.Repeat("-", 5000) + "\n"
	tree(t, env.Worktree, map[string]string{"f": line + line})
	for _, pattern := range []string{"NEEDLE", `(NEEDLE|x)\b`, `N[^\s]EDLE`} {
		if text, _ := answer(t, env, Grep{}, object{"pattern": pattern, "multiline": true}); strings.Count(text, "NEEDLE") != 2 || strings.Count(text, "at column 30001)") != 2 {
			t.Errorf("%s: %.200s", pattern, text)
		}
	}
	if text, _ := answer(t, env, Grep{}, object{"pattern": "NEEDLE", "literal": true, "multiline": true}); strings.Count(text, "NEEDLE") != 2 {
		t.Errorf("literal: %.200s", text)
	}
	// Each line of them is numbered and is as it is, also with lines around.
	tree(t, env.Worktree, map[string]string{"f": "1\n2 a\nb\n4 a\nb a\nb\n7\n8\n9 a\r\nb"})
	text, _ := answer(t, env, Grep{}, object{"pattern": `a\r?\nb`, "multiline": true, "context": 1})
	if want := "Found 7 matches.\n\nW/f (CRLF at the end of 1 of these lines):\n  1- 1\n  2: 2 a\n  3: b\n  4: 4 a\n  5: b a\n  6: b\n  7- 7\n  8- 8\n  9: 9 a\n  10: b\n"; text != want {
		t.Errorf("got %q, want %q", text, want)
	}
}

// TestGrepMarksOfOthers: names and texts that have in them what marks a match are not taken
// for anything else, and hide nothing.
func TestGrepMarksOfOthers(t *testing.T) { withRipgreps(t, testGrepMarksOfOthers) }

func testGrepMarksOfOthers(t *testing.T, env *Env) {
	names := []string{styleReset, matchBegin + "x", "x" + styleReset, "a\n" + styleReset + "b", styleReset + styleReset}
	files := map[string]string{}
	for _, name := range names {
		files[name] = "1" + matchBegin + "2" + styleReset + "NEEDLE\n" + styleReset + "3" + matchBegin + "\nNEEDLE" + matchBegin
		files["secret/"+name] = "NEEDLE s3cret\n"
	}
	tree(t, env.Worktree, files)
	text, r := answer(t, guarded(t, env), Grep{}, object{"pattern": "NEE+DLE", "multiline": true})
	if r.Metadata["matches"] != 2*len(names) || r.Metadata["files"] != len(names) || strings.Count(text, "NEEDLE") != 2*len(names) || strings.Contains(text, "s3cret") {
		t.Errorf("%v\n%q", r.Metadata, text)
	}
	for i := range r.Metadata["files"].(int) {
		if name := plain.Name(filepath.Join(env.Worktree, names[i])); !strings.Contains(text, strings.ReplaceAll(name, env.Worktree, "W")+":\n") {
			t.Errorf("no %s in %q", name, text)
		}
	}
}
