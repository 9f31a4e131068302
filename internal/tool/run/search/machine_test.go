package search

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
)

// The two machines agree with each other, and with Go's regular expressions
// where their syntax is the same and the text is ASCII.
func TestMachinesAgree(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	c := rand.New(rand.NewPCG(seed, 3))
	parts := []string{"a", "b", "A", " ", ".", "[ab]", "[^a]", "a*", "b+", "c?", "a{2}", "(a|b)", "(?:ab)*", "|", "^", "$", `\b`, `\B`, "(?i:ab)", "ab", "a*?", "xyz"}
	for range 3000 {
		var p strings.Builder
		for range c.IntN(6) + 1 {
			p.WriteString(parts[c.IntN(len(parts))])
		}
		pattern := p.String()
		q, err := Compile(pattern, Options{})
		if err != nil {
			continue // a repetition of nothing
		}
		want := regexp.MustCompile(pattern)
		d, k := newDFA(q.prog, nil), newPike(q.prog)
		for range 20 {
			line := make([]byte, c.IntN(12))
			for i := range line {
				line[i] = "aabbABc xyz_"[c.IntN(12)]
			}
			loc := want.FindIndex(line)
			if got := d.match(t.Context(), line); got != (loc != nil) {
				t.Fatalf("%q on %q: dfa says %v, want %v (seed %d)", pattern, line, got, loc, seed)
			}
			start, end, ok := k.find(t.Context(), line, 0)
			if ok != (loc != nil) || ok && (start != loc[0] || end != loc[1]) {
				t.Fatalf("%q on %q: pike says %d %d %v, want %v (seed %d)", pattern, line, start, end, ok, loc, seed)
			}
			if q.need != nil && loc != nil {
				var f finder
				if f.reset(q.need, line); f.find(0) < 0 {
					t.Fatalf("%q matches %q, which has none of %v", pattern, line, q.need.needs)
				}
			}
		}
	}
}

// FuzzCompile: no pattern makes the reader or the machines panic or hang, and
// what is needed for a match is there where there is one.
func FuzzCompile(f *testing.F) {
	for _, s := range []string{`a(b|c)*[^d-f]{2,3}\w\bé$`, `(?i)straße|[\p{L}--[a-z]]`, `(?x) a # b`, `[[:alpha:]&&[^\d]]`, `a**`, `\x{41}`, `(?`, `[`, `\`, `{`} {
		f.Add(s, "text äé K\xff\nmore", true, false)
	}
	f.Fuzz(func(t *testing.T, pattern, text string, multiline, fold bool) {
		if len(pattern) > 200 {
			return
		}
		q, err := Compile(pattern, Options{Multiline: multiline, IgnoreCase: fold})
		if err != nil {
			if _, ok := errors.AsType[*SyntaxError](err); !ok {
				t.Fatalf("%q: error %v is no *SyntaxError", pattern, err)
			}
			return
		}
		if !q.spans {
			text, _, _ = strings.Cut(text, "\n")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		d, k := newDFA(q.prog, nil), newPike(q.prog)
		match := d.match(ctx, []byte(text))
		start, end, ok := k.find(ctx, []byte(text), 0)
		if ctx.Err() == nil && (match != ok || ok && (start > end || end > len(text))) {
			t.Fatalf("%q on %q: dfa says %v, pike %d %d %v", pattern, text, match, start, end, ok)
		}
		if q.need != nil && ok {
			var f finder
			if f.reset(q.need, []byte(text)); f.find(0) < 0 {
				t.Fatalf("%q matches %q, which has nothing that it needs", pattern, text)
			}
		}
	})
}

func TestWordClass(t *testing.T) {
	set, err := classSet("[" + wordClass + "]")
	if err != nil {
		t.Fatal(err)
	}
	space, err := classSet("[" + spaceClass + "]")
	if err != nil {
		t.Fatal(err)
	}
	has := func(s runeSet, r rune) bool {
		for i := 0; i < len(s); i += 2 {
			if s[i] <= r && r <= s[i+1] {
				return true
			}
		}
		return false
	}
	for r := rune(0); r <= 0x3ffff; r++ {
		alphabetic := unicode.In(r, unicode.L, unicode.Nl, unicode.Other_Alphabetic)
		want := alphabetic || unicode.In(r, unicode.M, unicode.Nd, unicode.Pc, unicode.Join_Control)
		if has(set, r) != want || isWord(r) != want {
			t.Fatalf("%U: got %v and %v, want %v", r, has(set, r), isWord(r), want)
		}
		if r < 0x3100 && has(space, r) != unicode.Is(unicode.White_Space, r) {
			t.Fatalf("%U: space is %v", r, has(space, r))
		}
	}
}

// A pattern whose states are without end takes bounded memory, and its call's
// end ends it.
func TestStatesAreBounded(t *testing.T) {
	q, err := Compile(`[ab]*a[ab]{60}c`, Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := newDFA(q.prog, nil)
	c := rand.New(rand.NewPCG(1, 4))
	line := make([]byte, 200_000)
	for i := range line {
		line[i] = "ab"[c.IntN(2)]
	}
	if d.match(t.Context(), line) || len(d.states) > maxStates {
		t.Errorf("%d states", len(d.states))
	}
	wide := []byte(strings.Repeat("äöü日本語", 1000))
	if d.match(t.Context(), wide) || len(d.wide) > maxWide {
		t.Errorf("%d states by character", len(d.wide))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if newPike(q.prog).prog == nil || newDFA(q.prog, nil).match(ctx, append(line, bytes.Repeat([]byte("ab"), 1<<20)...)) {
		t.Error("it went on")
	}
}

func TestPatternBounds(t *testing.T) {
	words := make([]string, 100_000)
	for i := range words {
		words[i] = fmt.Sprintf("w%d", i)
	}
	for name, p := range map[string]string{
		"repetitions of repetitions": "((a{1000}){1000}){1000}", "a large repetition": "a{1001}",
		"groups": strings.Repeat("(", 5000) + strings.Repeat(")", 5000), "classes": strings.Repeat("[", 5000) + "a" + strings.Repeat("]", 5000),
		"stars": "a" + strings.Repeat("*", 30000),
	} {
		if _, err := Compile(p, Options{}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for name, p := range map[string]string{"many words": strings.Join(words[:6000], "|"), "a long word": strings.Repeat("abc", 10000)} {
		if _, err := Compile(p, Options{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
