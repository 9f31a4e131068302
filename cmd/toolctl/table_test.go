package main

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

// A table on a terminal is never wider than that, leaves nothing out without a mark, and
// is whole where it fits; with a last column that wraps, every word of it is there.
func TestTableFits(t *testing.T) {
	words := []string{"a", "ready", "何か", "/srv/some/long/directory", "x\x1b[2J", "", "several words of text that go on for a while", "12%"}
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 0))
		columns, wide := 1+r.IntN(8), 30+r.IntN(120)
		if r.IntN(8) == 0 {
			wide = 0
		}
		whole := &table{headers: min(r.IntN(4), 1)}
		narrow := &table{headers: whole.headers, wide: wide, wraps: r.IntN(2) == 0}
		if r.IntN(2) == 0 {
			narrow.ids, narrow.ends = []int{0}, []int{columns - 1}
		}
		var last []string
		for range 1 + r.IntN(6) {
			row := make([]string, columns)
			for i := range row {
				row[i] = words[r.IntN(len(words))]
			}
			whole.row(row...)
			narrow.row(row...)
			last = append(last, line(row[columns-1]))
		}
		var a, b bytes.Buffer
		whole.write(&a)
		narrow.write(&b)
		most := 0
		for l := range strings.Lines(a.String()) {
			most = max(most, width(strings.TrimSuffix(l, "\n")))
		}
		if (wide == 0 || total(whole.widths()) <= wide) && a.String() != b.String() {
			t.Fatalf("seed %d: fits into %d and is\n%s, not\n%s", seed, wide, b.String(), a.String())
		}
		for l := range strings.Lines(b.String()) {
			if n := width(strings.TrimSuffix(l, "\n")); wide > 0 && n > wide {
				t.Fatalf("seed %d: %d columns of %d in %q of\n%s", seed, n, wide, l, b.String())
			}
		}
		text := strings.Join(strings.Fields(b.String()), "")
		for _, l := range last {
			if narrow.wraps && columns == 1 && !strings.Contains(text, strings.Join(strings.Fields(l), "")) {
				t.Fatalf("seed %d: no %q in\n%s", seed, l, b.String())
			}
		}
		if most > wide && wide > 0 && !narrow.wraps && len(narrow.ids) == 0 && !strings.Contains(b.String(), "…") {
			t.Fatalf("seed %d: nothing says that something is left out of\n%s", seed, b.String())
		}
	}
}

// A table that has no room for its columns shows rows as paragraphs: its first column and short
// fields are whole, and so is every other field that is not marked as cut.
func TestTableKeeps(t *testing.T) {
	words := []string{"a", "ready", "何か", "ses_33m75s25uohappsfduoprjv36usk", "approval", "several words of text that go on for a while", "12%", "99.9GiB/100GiB"}
	headers := []string{"TENANT", "SESSIONS", "QUEUED", "CPU TIME", "MEMORY", "WORKTREES", "RECORDS", "I/O", "LABELS"}
	paragraphs := 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := 1 + r.IntN(len(headers))
		tab := (&app{outTTY: true, noHeaders: r.IntN(2) == 0, columns: func() int { return 60 + r.IntN(2) }, getenv: func(string) string { return "" }}).newTable("none", headers[:n]...)
		var firsts, shorts []string
		for range 1 + r.IntN(4) {
			row := make([]string, n)
			for i := range row {
				row[i] = words[r.IntN(len(words))]
				if width(row[i]) <= narrowest {
					shorts = append(shorts, row[i])
				}
			}
			firsts = append(firsts, row[0])
			tab.row(row...)
		}
		var b bytes.Buffer
		tab.write(&b)
		if strings.Contains(b.String(), "\n\n") {
			paragraphs++
		}
		text := strings.Join(strings.Fields(b.String()), "")
		for _, f := range append(firsts, shorts...) {
			if !strings.Contains(text, strings.Join(strings.Fields(f), "")) {
				t.Fatalf("seed %d: %q is cut in\n%s", seed, f, b.String())
			}
		}
		for l := range strings.Lines(b.String()) {
			if width(strings.TrimSuffix(l, "\n")) > 61 {
				t.Fatalf("seed %d: too wide: %q of\n%s", seed, l, b.String())
			}
		}
	}
	if paragraphs < 100 {
		t.Errorf("only %d tables were paragraphs", paragraphs)
	}
}

// A table without rows says so: in its place on a terminal, beside its headers elsewhere.
func TestTableEmpty(t *testing.T) {
	var out, err bytes.Buffer
	a := &app{stdout: &out, stderr: &err, getenv: func(string) string { return "" }}
	a.newTable("no things; make one", "ID", "NAME").write(&out)
	if out.String() != "ID  NAME\n" || err.String() != "toolctl: no things; make one\n" {
		t.Errorf("%q, %q", &out, &err)
	}
	out.Reset()
	a.outTTY = true
	if a.newTable("no things; make one", "ID", "NAME").write(&out); out.String() != "no things; make one\n" {
		t.Errorf("%q", &out)
	}
}

// TestFlow: lines that come one at a time are aligned by what has come, and no field of them is cut.
func TestFlow(t *testing.T) {
	var b strings.Builder
	f := &flow{widths: []int{0, 4}}
	f.write(&b, []string{"1", "a"}, "x")
	f.write(&b, []string{"22", "longer"}, "x", "y")
	f.write(&b, []string{"3", "b\x1b"}, "x")
	f.say(&b, "(words)")
	if want := "1  a     x\n22  longer  x  y\n3   b\\x1b   x\n(words)\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	b.Reset()
	f = &flow{wide: 30, widths: []int{0, 0}}
	f.write(&b, []string{"00:00:00.000", "a-tenant-of-any-length"}, "some", "words", "more")
	if want := "00:00:00.000\n    a-tenant-of-any-length\n    some  words  more\n"; strings.ReplaceAll(b.String(), " \n", "\n") != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
