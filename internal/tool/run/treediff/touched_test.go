package treediff

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// What may differ is read as it was written, in one order, and nothing else is taken.
func TestTouchedText(t *testing.T) {
	text := PackTouched([]Spot{{"d", false}, {"d-x", true}, {"d/e", false}, {"d/e/f", true}, {"a", true}, {"d", false}, {"w", false}, {"w", true}, {"w/in", true}, {"d/z", true}})
	if want := "a\x00d/\x00e/\x00f\x00/\x00z\x00/\x00d-x\x00w\x00"; string(text) != want {
		t.Errorf("got %q, want %q", text, want)
	}
	top, err := ParseTouched(text)
	if err != nil {
		t.Fatal(err)
	}
	if !top.at("d").at("e").at("f").at("below").whole || top.at("d").at("e").whole || !top.at("w").at("in").whole || !top.at("d-x").whole {
		t.Errorf("got %+v", top)
	}
	if none := top.at("x"); none.whole || len(none.below) > 0 {
		t.Errorf("got %+v", none)
	}
	for _, bad := range []string{"a", "\x00", "/\x00", "..\x00", ".\x00", "a/b\x00", "b\x00a\x00", "a\x00a\x00", "d/\x00b\x00a\x00", "a//\x00"} {
		if _, err := ParseTouched([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// What is not asked for is not looked at either.
func TestTouchedOf(t *testing.T) {
	top, err := ParseTouched(PackTouched([]Spot{{"d", false}, {"d/e", false}, {"d/e/f", true}, {"d/z", true}, {"w", true}, {"x", true}}))
	if err != nil {
		t.Fatal(err)
	}
	all := func(of *Touched) (names string) {
		for _, b := range of.below {
			names += b.name + " "
		}
		return names
	}
	sel := selectionOf([]string{"d/z", "d/none", "none", "w/in"})
	if got := all(top.of(sel)); got != "d w " {
		t.Errorf("at the top: %q", got)
	}
	if got := all(top.at("d").of(sel.at("d"))); got != "z " {
		t.Errorf("in d: %q", got)
	}
	if got := top.at("w").of(sel.at("w")); !got.whole {
		t.Errorf("in w: %+v", got)
	}
	if got := all(top.of(selectionOf(nil))); got != "d w x " {
		t.Errorf("where all is asked for: %q", got)
	}
	if got := (*Touched)(nil).of(sel); got != nil {
		t.Errorf("where all may differ: %+v", got)
	}
}

// Nothing but what may differ is looked at, whatever else does, and its content counts, not its times.
func TestTouchedAlone(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	base, tree := t.TempDir(), t.TempDir()
	for i, dir := range []string{base, tree} {
		for _, name := range []string{"d/in/one", "d/in/two", "d/other", "e/one", "f"} {
			must(os.MkdirAll(dir+"/"+name[:strings.LastIndexByte("/"+name, '/')], 0o755))
			must(os.WriteFile(dir+"/"+name, fmt.Appendf(nil, "%d %s\n", i, name), 0o644))
		}
		must(os.WriteFile(fmt.Sprintf("%s/only%d", dir, i), nil, 0o644))
	}
	r := newRig(t, base, tree)
	for _, tt := range []struct {
		spots []Spot
		want  string
	}{
		{nil, ""},
		{[]Spot{{"d", false}}, ""},
		{[]Spot{{"d", false}, {"d/other", true}}, "d/other"},
		{[]Spot{{"d", false}, {"d/in", true}}, "d/in/one d/in/two"},
		{[]Spot{{"d", false}, {"d/in", false}, {"d/in/two", true}, {"only0", true}, {"none", true}, {"f", true}}, "d/in/two f only0"},
		{[]Spot{{"d", true}, {"only1", true}}, "d/in/one d/in/two d/other only1"},
	} {
		for _, f := range []Format{List, Archive, Patch} {
			o := r.options(t, f)
			var err error
			o.Touched, err = ParseTouched(PackTouched(tt.spots))
			must(err)
			_, totals := writeAll(t, o)
			if n := len(strings.Fields(tt.want)); totals.Files != n {
				t.Errorf("%v, %s: %d differ, want %d", tt.spots, f, totals.Files, n)
			}
		}
		o := r.options(t, List)
		o.Touched, _ = ParseTouched(PackTouched(tt.spots))
		text, _ := writeAll(t, o)
		var paths []string
		all, _ := lines(t, text)
		for _, l := range all {
			paths = append(paths, l.Path)
		}
		if got := strings.Join(paths, " "); got != tt.want {
			t.Errorf("%v: %q differ, want %q", tt.spots, got, tt.want)
		}
	}
}
