package replace

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// find runs a query with default matching unless q says otherwise.
func find(t testing.TB, text string, q Query) (*Found, error) {
	t.Helper()
	if q.Strategies == nil {
		q.Strategies, _ = Default.Strategies()
	}
	return Find(context.Background(), []byte(text), q)
}

func TestFind(t *testing.T) {
	strict, _ := Strict.Strategies()
	lenient, _ := Lenient.Strategies()
	long := strings.Repeat("x", 40)
	tests := []struct {
		name           string
		text, old, new string
		all            bool
		use            []Strategy
		want           string
		strategy       Strategy
	}{
		{name: "exact", text: "a b c", old: "b", new: "B", want: "a B c", strategy: Exact},
		{name: "exact across lines", text: "a\nb\nc\n", old: "a\nb", new: "x", want: "x\nc\n", strategy: Exact},
		{name: "exact deletes", text: "a\nb\nc\n", old: "b\n", new: "", want: "a\nc\n", strategy: Exact},
		{name: "exact of blanks", text: "a  b", old: "  ", new: " ", want: "a b", strategy: Exact},
		{name: "all", text: "x y x y x", old: "x", new: "zz", all: true, want: "zz y zz y zz", strategy: Exact},
		{name: "all does not overlap", text: "aaaa", old: "aa", new: "b", all: true, want: "bb", strategy: Exact},
		{name: "all may contain itself", text: "a a", old: "a", new: "aa", all: true, want: "aa aa", strategy: Exact},

		{name: "crlf takes lf strings", text: "a\r\nb\r\nc\r\n", old: "a\nb\n", new: "x\ny\n", want: "x\r\ny\r\nc\r\n", strategy: Exact},
		{name: "crlf takes crlf strings", text: "a\r\nb\r\n", old: "a\r\nb", new: "a\r\nx\r\nb", want: "a\r\nx\r\nb\r\n", strategy: Exact},
		{name: "lf takes crlf strings", text: "a\nb\n", old: "a\r\nb", new: "x\r\ny", want: "x\ny\n", strategy: Exact},
		{name: "mixed keeps the rest", text: "a\r\nb\nc\r\nd\n", old: "b\nc", new: "b\nX\nc", want: "a\r\nb\nX\nc\r\nd\n", strategy: Exact},
		{name: "mixed takes the place's ending", text: "a\nb\r\nc\nd", old: "b\nc", new: "b\nX\nY\nc", want: "a\nb\r\nX\r\nY\r\nc\nd", strategy: Exact},
		{name: "mixed in the last line", text: "a\nb\r\nlast", old: "last", new: "x\ny", want: "a\nb\r\nx\r\ny", strategy: Exact},
		{name: "lone cr is a character", text: "a\rb\r\r\nc", old: "b\r\nc", new: "", want: "", strategy: ""},
		{name: "crlf all", text: "a\r\nb\r\na\r\n", old: "a\n", new: "c\nd\n", all: true, want: "c\r\nd\r\nb\r\nc\r\nd\r\n", strategy: Exact},
		{name: "crlf fuzzy", text: "if x {\r\n\tfoo()\r\n}\r\n", old: "if x {\n    foo()\n}", new: "if x {\n    bar()\n}", want: "if x {\r\n\tbar()\r\n}\r\n", strategy: LineTrimmed},

		{name: "trailing blanks in the text", text: "foo  \nbar\t\nbaz\n", old: "foo\nbar", new: "one\ntwo", want: "one\ntwo\nbaz\n", strategy: LineTrimmed},
		{name: "indentation of old is missing", text: "{\n    foo\n    bar\n}\n", old: "foo\nbar", new: "foo\nbaz", want: "{\n    foo\n    baz\n}\n", strategy: LineTrimmed},
		{name: "old is less deep", text: "{\n    a(\n        b,\n    )\n}\n", old: "a(\n    b,\n)", new: "a(\n    b,\n    c,\n)", want: "{\n    a(\n        b,\n        c,\n    )\n}\n", strategy: LineTrimmed},
		{name: "tabs for spaces", text: "\tif x {\n\t\tfoo()\n\t}\n", old: "    if x {\n        foo()\n    }", new: "    if x {\n        if y {\n            foo()\n        }\n    }", want: "\tif x {\n\t\tif y {\n\t\t\tfoo()\n\t\t}\n\t}\n", strategy: LineTrimmed},
		{name: "spaces for tabs", text: "  if x:\n    foo()\n", old: "\tif x:\n\t\tfoo()", new: "\tif x:\n\t\tbar()\n\telse:\n\t\tbaz()", want: "  if x:\n    bar()\n  else:\n    baz()\n", strategy: LineTrimmed},
		{name: "only the first line is quoted from its content", text: "  if x {  \n    foo()\n  }\n", old: "if x {\n    foo()\n  }", new: "if y {\n    foo()\n    bar()\n  }", want: "  if y {\n    foo()\n    bar()\n  }\n", strategy: LineTrimmed},
		{name: "flattened old", text: "  if x {\n    foo()\n  }\n", old: "if x {\nfoo()\n}", new: "if x {\nfoo()\nbar()\n}", want: "  if x {\n    foo()\n    bar()\n  }\n", strategy: LineTrimmed},
		{name: "line break at the end of old", text: " a \n b\nc\n", old: "a\nb\n", new: "x\ny\n", want: " x\n y\nc\n", strategy: LineTrimmed},
		{name: "final line break stays absent", text: " a \n b", old: "a\nb\n", new: "x\ny\n", want: " x\n y", strategy: LineTrimmed},
		{name: "line trimmed all", text: "\tx\ty\n  x\ty\n", old: "x\ty ", new: "z", all: true, want: "\tz\n  z\n", strategy: LineTrimmed},

		{name: "block anchor", text: "func f() {\n\ta := 1\n\tb := compute(a)\n\treturn b\n}\nrest\n", old: "func f() {\n\ta := 1\n\tb := compute(aa)\n\treturn b\n}", new: "func f() {\n\treturn 2\n}", want: "func f() {\n\treturn 2\n}\nrest\n", strategy: BlockAnchor},
		{name: "block anchor with one line more", text: "begin\none line\ntwo line\nthree line\nfour line\nmore\nend\n", old: "begin\none line\ntwo line\nthree line\nfour lime\nend", new: "X", want: "X\n", strategy: BlockAnchor},
		{name: "block anchor counts blank lines as equal", text: "begin\n\n\naaaa\nend\n", old: "begin\n\n  \nbbbb\nend", new: "X", want: "X\n", strategy: BlockAnchor},
		{name: "block of two lines more is none", text: "begin\n" + long + "\n1\n2\nend\n", old: "begin\n" + long + "\nend", new: "X", want: "", strategy: ""},

		{name: "blanks within a line", text: "x = foo( a,  b )\n", old: "foo( a, b )", new: "foo(b)", want: "x = foo(b)\n", strategy: WhitespaceNormalized},
		{name: "blanks within lines", text: "a  =  1\nb =\t2\n", old: "a = 1\nb = 2\n", new: "a = 1\nb = 3\n", want: "a  =  1\nb =\t3\n", strategy: WhitespaceNormalized},
		{name: "only blanks change", text: "a  =  1 \n", old: "a = 1", new: "a =   1", want: "a =   1\n", strategy: WhitespaceNormalized},
		{name: "indentation from within a line", text: "x = foo(\n        a,\n    )\n", old: "foo(\na,\n)", new: "foo(\na,\nb,\n)", want: "x = foo(\n        a,\n        b,\n    )\n", strategy: IndentationFlexible},
		{name: "escapes in old", text: "say(\"hi\")\n", old: `say(\"hi\")`, new: `say(\"bye\")`, want: "say(\"bye\")\n", strategy: EscapeNormalized},
		{name: "line breaks escaped in old", text: "a\nb\nc\n", old: `a\nb`, new: `a\nx\nb`, want: "a\nx\nb\nc\n", strategy: EscapeNormalized},
		{name: "other escapes of new stay", text: "say(\"hi\")\n", old: `say(\"hi\")`, new: `say(\"b\tye\")`, want: "say(\"b\\tye\")\n", strategy: EscapeNormalized},
		{name: "escapes in the text", text: `{"s": "say \"hi\" now"}`, old: `say "hi" now`, new: `say "hi" or "bye" now`, want: `{"s": "say \"hi\" or \"bye\" now"}`, strategy: EscapeNormalized},
		{name: "trimmed boundary", text: "a foo b\n", old: "\nfoo\n", new: "\nbar\n", want: "a bar b\n", strategy: TrimmedBoundary},
		{name: "context aware", text: "begin\nkeep this one\nentirely different\nend\n", old: "begin\nkeep this one\nqqq\nend", new: "X", want: "X\n", strategy: ContextAware},
		{name: "unicode quotes", text: "say “hi” – now\n", old: "say \"hi\" - now", new: "say \"hi\" - later", want: "say “hi” – later\n", strategy: Unicode},
		{name: "unicode in old", text: "it's plain\n", old: "it’s plain", new: "it’s fancy", want: "it's fancy\n", strategy: Unicode},
		{name: "no-break space", text: "a\u00a0b c\n", old: "a b c", new: "a b d", want: "a\u00a0b d\n", strategy: Unicode},

		{name: "strict exact", text: "a", old: "a", new: "b", use: strict, want: "b", strategy: Exact},
		{name: "strict trailing space", text: "a  \nb \nc", old: "a\nb", new: "a\nx", use: strict, want: "a  \nx\nc", strategy: TrailingSpace},
		{name: "strict indentation", text: "  a\n  b\n", old: "a\nb", new: "x", use: strict, want: "", strategy: ""},
		{name: "strict unicode", text: "“a”", old: "\"a\"", new: "\"b\"", use: strict, want: "“b”", strategy: Unicode},
		{name: "lenient line", text: "one\nthe quick brown fox\nthree\n", old: "the quik brown fix", new: "x", use: lenient, want: "one\nx\nthree\n", strategy: Similar},
		{name: "default is not lenient", text: "one\nthe quick brown fox\nthree\n", old: "the quik brown fix", new: "x", want: "", strategy: ""},
		{name: "lenient block", text: "alpha one\nbeta two\ngamma\n", old: "alpha on\nbeto two", new: "x", use: lenient, want: "x\ngamma\n", strategy: Similar},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			found, err := find(t, tt.text, Query{Old: tt.old, New: tt.new, All: tt.all, Strategies: tt.use})
			if tt.strategy == "" {
				if err == nil {
					t.Fatalf("found by %s: %q", found.Strategy, found.Apply([]byte(tt.text)))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := string(found.Apply([]byte(tt.text)))
			if got != tt.want || found.Strategy != tt.strategy {
				t.Errorf("by %s: %q\nwant by %s: %q", found.Strategy, got, tt.strategy, tt.want)
			}
			if found.Size([]byte(tt.text)) != len(got) {
				t.Errorf("Size = %d, want %d", found.Size([]byte(tt.text)), len(got))
			}
		})
	}
}

func TestFindErrors(t *testing.T) {
	var ambiguous *AmbiguousError
	if _, err := find(t, "a\nb\na\nb\na\n", Query{Old: "a", New: "x"}); !errors.As(err, &ambiguous) || ambiguous.Count != 3 ||
		ambiguous.Error() != "the old text was found at 3 places, beginning in lines 1, 3, 5" {
		t.Errorf("several places: %v", err)
	}
	if _, err := find(t, "aaa", Query{Old: "aa", New: "x"}); !errors.As(err, &ambiguous) {
		t.Errorf("overlapping places: %v, want ambiguous", err)
	}
	if _, err := find(t, " a \n b \nx\na\n b", Query{Old: "a\nb", New: "x"}); !errors.As(err, &ambiguous) || ambiguous.Strategy != LineTrimmed {
		t.Errorf("several fuzzy places: %v", err)
	}
	many := strings.Repeat("a\n", 100)
	if _, err := find(t, many, Query{Old: "a", New: "x"}); !errors.As(err, &ambiguous) || !strings.HasSuffix(err.Error(), "20 … (80 more)") {
		t.Errorf("many places: %v", err)
	}
	if _, err := find(t, "a", Query{Old: "", New: "x"}); !errors.Is(err, ErrEmpty) {
		t.Errorf("empty: %v", err)
	}
	if _, err := find(t, "a", Query{Old: "a\r\n", New: "a\n"}); !errors.Is(err, ErrSameText) {
		t.Errorf("same: %v", err)
	}
	var same *NoChangeError
	if _, err := find(t, "  a \n", Query{Old: " a", New: "  a "}); !errors.As(err, &same) && err != nil {
		t.Errorf("no change: %v", err)
	}
	if _, err := find(t, strings.Repeat("a", MaxMatches+1), Query{Old: "a", New: "b", All: true}); !errors.Is(err, ErrTooMany) {
		t.Errorf("too many: %v", err)
	}
	// Every place needs the new text with its own indentation.
	text := strings.Repeat("\ta\n\tb\n", 1<<14)
	if _, err := find(t, text, Query{Old: "a\nb", New: strings.Repeat("c\n", 1<<11), All: true}); !errors.Is(err, ErrTooMuch) {
		t.Errorf("large replacements at many places: %v", err)
	}
	if _, err := find(t, "a", Query{Old: "a", New: "b", Strategies: []Strategy{"guess"}}); err == nil {
		t.Error("an unknown strategy was accepted")
	}
	if _, err := Matching("loose").Strategies(); err == nil {
		t.Error("an unknown matching was accepted")
	}
	cause := errors.New("time is over")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	if _, err := Find(ctx, []byte("a"), Query{Old: "a", New: "b", Strategies: []Strategy{Exact}}); !errors.Is(err, cause) {
		t.Errorf("ended context: %v", err)
	}
}

// A place that is out of proportion is refused, whatever found it.
func TestSpanGuard(t *testing.T) {
	tests := []struct {
		name     string
		old      string
		span     string
		refused  bool
		oldLines []string
	}{
		{"as large", "a\nb", "a\nb", false, nil},
		{"two lines more", "a\nb\nc\nd", "a\nb\nc\nd\ne\nf", false, nil},
		{"three lines for one", "a", "a\nb\nc\n", false, nil},
		{"four lines for one", "a", "a\nb\nc\nd", true, nil},
		{"twice the lines", "a\nb\nc\nd", "1\n2\n3\n4\n5\n6\n7\n8", true, nil},
		{"one long line", "a", strings.Repeat("x", 10000), false, nil},
		{"500 characters more", "ab", "a\n" + strings.Repeat("é", 500), false, nil},
		{"501 characters more", "ab", "a\n" + strings.Repeat("é", 501), true, nil},
		{"four times", strings.Repeat("a", 300), "a\n" + strings.Repeat("x", 1198), false, nil},
		{"more than four times", strings.Repeat("a", 300), "a\n" + strings.Repeat("x", 1199), true, nil},
	}
	for _, tt := range tests {
		f := &finder{text: []byte("before\n" + tt.span + "\nafter"), old: tt.old, oldLines: strings.Split(tt.old, "\n")}
		err := f.checkSpan(place{start: 7, end: 7 + len(tt.span)})
		if (err != nil) != tt.refused {
			t.Errorf("%s: %v, want refused %v", tt.name, err, tt.refused)
		}
	}
}

func TestNearest(t *testing.T) {
	text := "package a\n\nfunc first(x int) int {\n\treturn x + 1\n}\n\nfunc second(y int) int {\n\treturn y * 2\n}\n"
	_, err := find(t, text, Query{Old: "func secnd(y int) {\n\treturn y*3\n}", New: "x"})
	var missing *NotFoundError
	if !errors.As(err, &missing) || len(missing.Nearest) == 0 {
		t.Fatalf("error = %v", err)
	}
	best := missing.Nearest[0]
	if best.Line != 7 || best.Similarity < 0.6 || best.Text != "func second(y int) int {\n\treturn y * 2\n}" {
		t.Errorf("nearest = %+v", best)
	}
	_, err = find(t, "abc\ndef\n", Query{Old: "12345 67890", New: "x"})
	if !errors.As(err, &missing) || len(missing.Nearest) != 0 {
		t.Errorf("nothing similar: %+v", missing)
	}
	_, err = find(t, "", Query{Old: "a", New: "b"})
	if !errors.As(err, &missing) {
		t.Errorf("empty text: %v", err)
	}
}

// Large and adversarial texts are answered in bounded time: the bound is far
// above what they need, and far below what a quadratic search would take.
func TestHostileTexts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	lenient, _ := Lenient.Strategies()
	big := 4 << 20
	tests := map[string]struct{ text, old string }{
		"equal lines":       {strings.Repeat("a\n", big/2), strings.Repeat("a\n", 1<<18) + "b"},
		"equal long lines":  {strings.Repeat(strings.Repeat("a", 1000)+"\n", big/1000), strings.Repeat(strings.Repeat("a", 999)+"b\n", 1000)},
		"only line breaks":  {strings.Repeat("\n", big), "a\n" + strings.Repeat("\n", 1<<19) + "b"},
		"anchors all over":  {strings.Repeat("{\n}\n", big/4), "{\n" + strings.Repeat("x\n", 1<<17) + "}"},
		"one line":          {strings.Repeat("ab", big/2), strings.Repeat("ab", 1<<18) + "c"},
		"blanks":            {strings.Repeat(" ", big), "a" + strings.Repeat(" ", 1<<19) + "b"},
		"escapes":           {strings.Repeat(`\n`, big/2), strings.Repeat(`\n`, 1<<18) + "x"},
		"carriage returns":  {strings.Repeat("\r\n", big/2), strings.Repeat("\r\n", 1<<18) + "x"},
		"multibyte":         {strings.Repeat("“é”\n", big/9), strings.Repeat("\"e\"\n", 1<<16) + "x"},
		"many similar ends": {strings.Repeat("begin\nxxxxxxxxxx\nend\n", big/20), "begin\nyyyyyyyyyyxx\nend"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			start := time.Now()
			_, err := Find(ctx, []byte(tt.text), Query{Old: tt.old, New: "z", Strategies: lenient})
			if err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error = %v", err)
			}
			t.Logf("%v: %.100v", time.Since(start), err)
		})
	}
}

// An exact and unique old text is replaced like strings.Replace does it, and
// nothing outside the place changes.
func FuzzFind(f *testing.F) {
	f.Add("a\r\nb\n", "b", "c\nd", false, uint8(1))
	f.Add("  foo(\n\tbar)\n", "foo(\n bar)", "foo(\n baz)", true, uint8(2))
	f.Add("say \\\"hi\\\"", "say \"hi\"", "x\"", false, uint8(1))
	f.Add("“x”\u00a0y", "\"x\" y", "z", false, uint8(0))
	f.Fuzz(func(t *testing.T, text, old, replacement string, all bool, matching uint8) {
		m := []Matching{Strict, Default, Lenient}[matching%3]
		strategies, _ := m.Strategies()
		found, err := Find(context.Background(), []byte(text), Query{Old: old, New: replacement, All: all, Strategies: strategies})
		if err != nil {
			if found != nil {
				t.Fatal("an error and a result")
			}
			return
		}
		got := found.Apply([]byte(text))
		checkUntouched(t, text, string(got), found)
		plain := !strings.Contains(text+old+replacement, "\r")
		if plain && strings.Count(text, old) >= 1 {
			n := 1
			if all {
				n = -1
			}
			if want := strings.Replace(text, old, replacement, n); string(got) != want || found.Strategy != Exact {
				t.Errorf("by %s: %q, want %q", found.Strategy, got, want)
			}
		}
	})
}

// checkUntouched proves that the changes are in order and that what lies between
// them is still there.
func checkUntouched(t *testing.T, text, got string, found *Found) {
	t.Helper()
	end := 0
	rest := []byte(got)
	for _, m := range found.Matches {
		if m.Start < end || m.End < m.Start || m.End > len(text) {
			t.Fatalf("changes out of order: %+v", found.Matches)
		}
		part := text[end:m.Start] + m.New
		if !bytes.HasPrefix(rest, []byte(part)) {
			t.Fatalf("%q does not go on with %q", rest, part)
		}
		rest = rest[len(part):]
		end = m.End
	}
	if string(rest) != text[end:] {
		t.Fatalf("the end changed: %q, want %q", rest, text[end:])
	}
}
