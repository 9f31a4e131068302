package main

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Folding loses no word, makes no line too wide that could be broken, and ends, whatever the lines that it makes begin with.
func TestFold(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	parts := []string{"a", "word", "länger", "日本語", "toolctl", "  ", "\n", "\n  toolctl ", "a-word-that-is-longer-than-any-line"}
	for range 20000 {
		var b strings.Builder
		for range random.IntN(30) {
			b.WriteString(parts[random.IntN(len(parts))])
			b.WriteString([]string{" ", " ", ""}[random.IntN(3)])
		}
		text, wide := b.String(), 12+random.IntN(30)
		hang := []string{"", "  ", "toolctl:   "}[random.IntN(3)]
		got := fold(text, wide, hang)
		if !slices.Equal(strings.Fields(strings.ReplaceAll(got, "\n"+hang, "\n")), strings.Fields(text)) {
			t.Fatalf("%d columns: %q became %q", wide, text, got)
		}
		for l := range strings.SplitSeq(got, "\n") {
			if width(l) > wide && !isCommand(l) && strings.Contains(strings.TrimSpace(clipped(strings.TrimPrefix(l, hang), wide+1-len(hang))), " ") {
				t.Fatalf("%d columns: %q has the line %q", wide, text, l)
			}
		}
		if fold(text, 0, hang) != text {
			t.Fatal("folded without a width")
		}
	}
}

func TestReflow(t *testing.T) {
	text := "one two\nthree\n\n  - as it is\n    here\n\nfour\nfive"
	if got, want := reflow(text, 10), "one two\nthree\n\n  - as it\nis\n    here\n\nfour five"; got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if got := reflow(text, 0); got != text {
		t.Errorf("without a width: %q", got)
	}
}
