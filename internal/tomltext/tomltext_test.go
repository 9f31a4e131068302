package tomltext

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

const sample = `top = 1
a.b = 2

[table]
"quoted.key" = [
  { x = 1 },
  { y = 2, z.w = 3 },
]
nested = [[1, 2], [3]]

[[list]]
k = 1
[list.sub]
s = 1
[[list]]
k = 2

[table.later]
l = 1
`

func TestFind(t *testing.T) {
	d, err := Parse("f", []byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path string
		line int // 0: not there
	}{
		{"top", 1},
		{"a", 2},
		{"a/b", 2},
		{"table", 4},
		{"table/quoted.key", 5},
		{"table/quoted.key/1/x", 6},
		{"table/quoted.key/2", 7},
		{"table/quoted.key/2/z/w", 7},
		{"table/quoted.key/3", 0},
		{"table/quoted.key/x", 0},
		{"table/nested/1/2", 9},
		{"list", 11},
		{"list/1", 11},
		{"list/1/k", 12},
		{"list/1/sub/s", 14},
		{"list/2", 15},
		{"list/2/k", 16},
		{"list/2/sub", 0},
		{"table/later/l", 19},
		{"missing/more", 0},
	} {
		n := d.Root.Find(strings.Split(tt.path, "/")...)
		if n == nil && tt.line != 0 || n != nil && n.Line != tt.line {
			t.Errorf("%s: got %+v, want line %d", tt.path, n, tt.line)
		}
	}
	if n := d.Root.Nearest("table", "later", "missing", "x"); n.Line != 18 {
		t.Errorf("nearest: %+v", n)
	}
	if n := d.Root.Nearest("missing"); n != d.Root {
		t.Errorf("nearest of nothing: %+v", n)
	}
	if !d.Root.Find("a", "b").Dotted || d.Root.Find("a").Dotted || d.Root.Find("table", "later").Dotted {
		t.Error("dotted: want a.b alone")
	}
	if d.Root.Find("list").Item(5) != nil || (*Node)(nil).Item(0) != nil {
		t.Error("an element that is not there")
	}
}

// TestOrder: keys come in the order of the text, however it writes its tables.
func TestOrder(t *testing.T) {
	d, err := Parse("f", []byte("b = { y = 1, x = 2 }\n[c]\nk = 1\n[a]\nz.q = 1\ny = 2\nz.p = 3\n"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	var walk func(prefix string, n *Node)
	walk = func(prefix string, n *Node) {
		for _, k := range n.Keys {
			all = append(all, fmt.Sprint(prefix, k.Name, ":", k.Order))
			walk(prefix+k.Name+".", k)
		}
	}
	walk("", d.Root)
	want := "b:1 b.y:2 b.x:3 c:4 c.k:5 a:6 a.z:7 a.z.q:8 a.z.p:10 a.y:9"
	if got := strings.Join(all, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestErrors(t *testing.T) {
	for _, tt := range []struct{ doc, want string }{
		{"a = 1\nb = = 2\n", "f:2: expected value but found '=' instead"},
		{"a = 1\na = 2\n", "f:2: Key 'a' has already been defined."},
	} {
		if _, err := Parse("f", []byte(tt.doc)); err == nil || err.Error() != tt.want {
			t.Errorf("%q: got %v, want %s", tt.doc, err, tt.want)
		}
	}
	for _, tt := range []struct{ doc, want string }{
		{"a.b.c = 1\n", ""},
		{"[a.b]\nc = 1\n", ""},
		{"[[a]]\n[a.b]\nc = 1\n", ""},
		{"a = [[1]]\n", ""},
		{"x = 1\na.b.c.d = 1\n", "f:2: is nested more than 3 deep: remove what is deeper"},
		{"[a.b]\nc = { d = 1 }\n", "f:2: is nested more than 3 deep: remove what is deeper"},
		{"[a.b.c.d]\n", "f:1: is nested more than 3 deep: remove what is deeper"},
		{"[[a.b.c.d]]\n", "f:1: is nested more than 3 deep: remove what is deeper"},
		{"a = [[[1]]]\n", "f:1: is nested more than 3 deep: remove what is deeper"},
		{"a = 1\nb = = 2\n", "f:2: expected value but found '=' instead"},
		{"a = 1\na = 2\n", "f:2: Key 'a' has already been defined."},
	} {
		d, err := ParseShallow("f", []byte(tt.doc), 3)
		if got := fmt.Sprint(err); tt.want == "" && (err != nil || d.Values == nil) || tt.want != "" && got != tt.want {
			t.Errorf("%q: got %v, want %s", tt.doc, err, tt.want)
		}
	}
}

func TestProblems(t *testing.T) {
	err := Join([]Problem{{"f", 2, "b"}, {"f", 1, "c"}, {"f", 2, "a"}, {"", 0, "x"}, {"f", 2, "b"}, {"--flag", 0, "y"}})
	if want := "x\n--flag: y\nf:1: c\nf:2: a\nf:2: b"; err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if Join(nil) != nil {
		t.Error("no problem is an error")
	}
	if Problems(errors.New("x")) != nil || len(Problems(fmt.Errorf("w: %w", err))) != 5 {
		t.Error("problems of an error")
	}
}

func TestDotted(t *testing.T) {
	if got := Dotted("a", "b.c", "", "d-e_F9", "ü"); got != `a."b.c"."".d-e_F9."ü"` {
		t.Errorf("got %s", got)
	}
}

// FuzzParse: both readers of a text see the same keys, so that nothing which is
// decoded has no line.
func FuzzParse(f *testing.F) {
	f.Add(sample)
	f.Add("a=[{b=[{c=1}]},{d.e=2}]\n[[x.y]]\n[x.y.z]\n[[x.y]]\n")
	f.Add("\"\\u0000\".'' = 1\n")
	for _, doc := range strange {
		f.Add(doc)
	}
	f.Fuzz(func(t *testing.T, doc string) {
		d, err := Parse("f", []byte(doc))
		if err != nil {
			if len(Problems(err)) == 0 {
				t.Fatalf("an error without problems: %v", err)
			}
			// What is refused for its depth is so deep.
			if excess([]byte(doc), maxDepth) != nil && len(doc) < 4096 {
				_, err1 := decode("f", []byte(doc))
				root, err2 := index("f", []byte(doc), len(doc))
				if err1 == nil && err2 == nil && depthOf(root) <= maxDepth {
					t.Fatalf("%v, and it is %d deep", err, depthOf(root))
				}
			}
			return
		}
		check(t, d.Root, d.Values)
		if n := depthOf(d.Root); n > maxDepth {
			t.Fatalf("is %d deep", n)
		}
	})
}

// depthOf is how deep the deepest key or element is.
func depthOf(n *Node) int {
	deepest := 0
	for _, k := range append(n.Keys, n.Items...) {
		deepest = max(deepest, 1+depthOf(k))
	}
	return deepest
}

func check(t *testing.T, n *Node, v any) {
	switch v := v.(type) {
	case map[string]any:
		if len(v) != len(n.Keys) {
			t.Fatalf("%d keys, and %d with lines: %v", len(v), len(n.Keys), v)
		}
		for name, value := range v {
			k := n.Key(name)
			if k == nil || k.Line == 0 {
				t.Fatalf("no line of %q", name)
			}
			check(t, k, value)
		}
	case []map[string]any:
		for i, value := range v {
			check(t, n.Item(i), value)
		}
	case []any:
		for i, value := range v {
			check(t, n.Item(i), value)
		}
	}
}

// TestUnquoted: a value that is text without quotes is refused with the line as it is to be, which then
// is taken; a line with another fault has no such hint.
func TestUnquoted(t *testing.T) {
	for _, value := range []string{"overlay", "1Gi", "10m", "/usr/bin", "~/x", "debian:12", "*.example.com", "10.0.0.0/8", "yes", "a b c", "True", "5 GiB"} {
		_, err := Parse("f", []byte("[a]\n  key = "+value+"  # why\nb = 1\n"))
		_, write, ok := strings.Cut(fmt.Sprint(err), "write ")
		if !ok || !strings.HasPrefix(err.Error(), "f:2: ") || write != fmt.Sprintf("key = %q", value) {
			t.Errorf("%s: %v", value, err)
			continue
		}
		if _, err := Parse("f", []byte(write)); err != nil {
			t.Errorf("%s: what is to be written is refused: %v", write, err)
		}
	}
	for _, line := range []string{"a = ", "a", "a = [1, 2", "a = 'x", "a = {b = c}", "= 1", "a = x = 'y'"} {
		if _, err := Parse("f", []byte(line+"\n")); err == nil || strings.Contains(err.Error(), "quotes: write") {
			t.Errorf("%q: %v", line, err)
		}
	}
}
