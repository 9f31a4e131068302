package treediff

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestConverted: a changed file is counted where the .gitattributes files of the base have git refuse it.
func TestConverted(t *testing.T) {
	t.Parallel()
	const upper, ident, wide = "a b c\n", "x $Id: y $\n", "a\x00b\x00\n\x00"
	for name, tt := range map[string]struct {
		attributes map[string]string
		file       string
		base, tree string // "" for none
		want       int
	}{
		"a filter":              {map[string]string{".": "*.bin filter=up -text\n"}, "f.bin", upper, upper + "d\n", 1},
		"a file that is gone":   {map[string]string{".": "*.bin filter=up\n"}, "f.bin", upper, "", 1},
		"a new one":             {map[string]string{".": "*.bin filter=up\n"}, "f.bin", "", upper, 0},
		"another name":          {map[string]string{".": "*.bin filter=up\n"}, "f.txt", upper, upper + "d\n", 0},
		"none":                  {nil, "f", upper, upper + "d\n", 0},
		"an encoding":           {map[string]string{".": "f working-tree-encoding=UTF-16LE\n"}, "f", wide, wide + wide, 1},
		"ident":                 {map[string]string{".": "\ufeff# $Id$\n\nf\tident\n"}, "f", ident, ident + "d\n", 1},
		"ident, and no id":      {map[string]string{".": "f ident\n"}, "f", upper, upper + "d\n", 0},
		"git's own encoding":    {map[string]string{".": "f working-tree-encoding=utf-8\n"}, "f", "\u00e4\n", "\u00e4\u00f6\n", 0},
		"ident, off":            {map[string]string{".": "* ident\nf -ident\n"}, "f", ident, ident + "d\n", 0},
		"ident, not said":       {map[string]string{".": "* ident\nf !ident\n"}, "f", ident, ident + "d\n", 0},
		"the last line":         {map[string]string{".": "f -filter\n* filter=up\n"}, "f", upper, upper + "d\n", 1},
		"a deeper file":         {map[string]string{".": "* filter=up\n", "a": "* -filter\n"}, "a/b/f", upper, upper + "d\n", 0},
		"a deeper one that has": {map[string]string{"a": "/b/f filter=up\n"}, "a/b/f", upper, upper + "d\n", 1},
		"beside":                {map[string]string{"c": "* filter=up\n"}, "a/f", upper, upper + "d\n", 0},
		"a directory's pattern": {map[string]string{".": "a/ filter=up\n"}, "a/f", upper, upper + "d\n", 0},
		"in quotes":             {map[string]string{".": "\"a b\" filter=up\n"}, "a b", upper, upper + "d\n", 1},
		"a macro":               {map[string]string{".": "[attr]big filter=up -diff\n*.bin big\n"}, "f.bin", upper, upper + "d\n", 1},
		"a macro, off":          {map[string]string{".": "[attr]big filter=up -diff\n*.bin -big\n"}, "f.bin", upper, upper + "d\n", 0},
		"a negative pattern":    {map[string]string{".": "!f filter=up\n"}, "f", upper, upper + "d\n", 0},
		"other attributes":      {map[string]string{".": "* text=auto diff=x merge=y filters=up\n"}, "f", upper, upper + "d\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, t.TempDir(), t.TempDir())
			put := func(dir, name, text string) error {
				if text == "" {
					return nil
				}
				file := filepath.Join(dir, name)
				return errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644))
			}
			err := errors.Join(put(r.base, tt.file, tt.base), put(r.tree, tt.file, tt.tree))
			for dir, text := range tt.attributes {
				for _, side := range []string{r.base, r.tree} {
					err = errors.Join(err, put(side, dir+"/.gitattributes", text))
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			patch, totals := r.write(t, Patch)
			if totals.Files != 1 || totals.Converted != tt.want {
				t.Errorf("totals %+v, want %d converted", totals, tt.want)
			}
			for _, args := range [][]string{{"init", "-q"}, {"config", "filter.up.clean", "tr a-z A-Z"}} {
				if _, err := gitIn(t, r.base, nil, args...); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := gitIn(t, r.base, patch, "apply", "--check"); (err != nil) != (tt.want > 0) {
				t.Errorf("git apply: %v", err)
			}
		})
	}
}
