package search

import "testing"

// Each of several braces has its own alternatives.
func TestGlobBraces(t *testing.T) {
	for _, tc := range []struct {
		glob    string
		yes, no []string
	}{
		{"{ab}{c,d}", []string{"abc", "abd"}, []string{"cc", "dd", "ab", "abcd"}},
		{"{a,b}{cd,e,f}", []string{"acd", "bcd", "ae", "bf"}, []string{"cdcd", "ee", "a", "ff"}},
		{"{a,b}/{c,d}/{e}", []string{"a/c/e", "b/d/e"}, []string{"e/e/e", "c/c/e", "a/b/e"}},
	} {
		g, err := compileGlob(tc.glob)
		if err != nil {
			t.Fatal(err)
		}
		m := globber{ctx: t.Context()}
		for _, path := range tc.yes {
			if !m.match(g, path) {
				t.Errorf("%s does not match %s", tc.glob, path)
			}
		}
		for _, path := range tc.no {
			if m.match(g, path) {
				t.Errorf("%s matches %s", tc.glob, path)
			}
		}
	}
}
