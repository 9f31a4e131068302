package run

import (
	"fmt"
	"strings"
	"testing"
)

// Of a line that is too long to be shown the part with the match is.
func TestGrepLongLine(t *testing.T) { withRipgreps(t, testGrepLongLine) }

func testGrepLongLine(t *testing.T, env *Env) {
	fill := func(n int) string { return strings.Repeat("é-", n/3) }
	tree(t, env.Worktree, map[string]string{
		"start": "NEEDLE" + fill(9000) + "\n",
		"near":  fill(1800) + "NEEDLE" + fill(9000) + "\r\n",
		"fits":  fill(2400) + "NEEDLE" + "\r\n",
		"far":   fill(3000) + "NEEDLE" + fill(9000) + "\n",
		"deep":  fill(60000) + "NEEDLE!" + fill(90000) + "NEEDLE\n",
		"end":   "before\n" + fill(30000) + "NEEDLE\nafter\n",
		"bytes": strings.Repeat("\xff", 9000) + "NEEDLE",
	})
	for _, tt := range []struct {
		path, begin, end string
	}{
		{"start", "1: NEEDLEé-", " … (line cut)"},
		{"near", "1: é-", " … (line cut)"},
		{"fits", "1: é-", "é-NEEDLE"},
		{"far", "1: … é-", " … (line cut; the match is at column 3001)"},
		{"deep", "1: … é-", " … (line cut; the match is at column 60001)"},
		{"end", "2: … é-", "é-NEEDLE … (line cut; the match is at column 30001)"},
		{"bytes", "1: … ", "NEEDLE … (line cut; the match is at column 9001)"},
	} {
		text, _ := answer(t, env, Grep{}, object{"pattern": "NE+DLE!?", "path": tt.path})
		_, line, _ := strings.Cut(text, ":\n  ")
		line = strings.TrimSuffix(line, "\n")
		if !strings.HasPrefix(line, tt.begin) || !strings.HasSuffix(line, tt.end) || strings.Count(line, "NEEDLE") != 1 {
			t.Errorf("%s: %.80s … %s", tt.path, line, line[max(0, len(line)-80):])
		}
	}
	text, _ := answer(t, env, Grep{}, object{"pattern": "NEEDLE", "path": "end", "context": 1})
	if !strings.Contains(text, "  1- before\n") || !strings.Contains(text, "  3- after\n") || !strings.Contains(text, "at column 30001)\n") {
		t.Errorf("context: %.200s", text)
	}
	if text, _ := answer(t, env, Grep{}, object{"pattern": "NEEDLE", "path": "deep", "multiline": true}); len(text) > 9000 {
		t.Errorf("multiline: %d bytes", len(text))
	}
}

// The dollar stands before a carriage return at the end of a line too.
func TestGrepCRLF(t *testing.T) { withRipgreps(t, testGrepCRLF) }

func testGrepCRLF(t *testing.T, env *Env) {
	tree(t, env.Worktree, map[string]string{"f": "foo\r\nfoo bar\r\n\r\nbar foo\r\nfoo\n"})
	for pattern, lines := range map[string][]int{
		"foo$": {1, 4, 5}, "^$": {3}, "o$": {1, 4, 5}, "(foo|bar)$": {1, 2, 4, 5}, "b.*$": {2, 4}, "foo.$": {}, `foo\s$`: {},
		`foo\r$`: {1, 4}, `\x0d$`: {1, 2, 3, 4}, `foo\r`: {1, 4}, "foo[^x]$": {},
	} {
		text, r := answer(t, env, Grep{}, object{"pattern": pattern})
		for _, n := range lines {
			if !strings.Contains(text, fmt.Sprintf("\n  %d: ", n)) {
				t.Errorf("%s: no line %d in %s", pattern, n, text)
			}
		}
		if r.Metadata["matches"] != len(lines) || strings.Contains(text, "\r") {
			t.Errorf("%s: %v\n%q", pattern, r.Metadata, text)
		}
	}
}

// An answer that leaves something out is truncated.
func TestSearchTruncated(t *testing.T) {
	env := ripgrepEnv(t)
	files := map[string]string{}
	for i := range 101 {
		files[fmt.Sprintf("d/f%d", i)] = "x\n"
	}
	tree(t, env.Worktree, files)
	for _, tt := range []struct {
		tool Tool
		in   object
		want bool
	}{
		{Grep{}, object{"pattern": "x"}, true},
		{Grep{}, object{"pattern": "x", "limit": 101}, false},
		{Grep{}, object{"pattern": "x", "output_mode": "files"}, true},
		{Glob{}, object{"pattern": "*"}, true},
		{Glob{}, object{"pattern": "f1*"}, false},
		{List{}, object{}, true},
	} {
		if _, r := answer(t, env, tt.tool, tt.in); r.Metadata["truncated"] != tt.want {
			t.Errorf("%s %v: %v", tt.tool.Name(), tt.in, r.Metadata)
		}
	}
}
