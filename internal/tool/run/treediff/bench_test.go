package treediff

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// large makes a tree of count files in directories of 20, and an overlay over it in which
// the first changed of them have one line more.
func large(b *testing.B, count, changed int) *rig {
	base := b.TempDir()
	name := func(i int) string { return fmt.Sprintf("d%d/d%d/f%d.go", i/2000, i/20, i) }
	text := func(i int) []byte {
		var t []byte
		for l := range 40 {
			t = fmt.Appendf(t, "line %d of file %d\n", l, i)
		}
		return t
	}
	write := func(dir string, i int, text []byte) {
		path := filepath.Join(dir, name(i))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	for i := range count {
		write(base, i, text(i))
	}
	tree, unmount := overlay(b, base)
	b.Cleanup(unmount)
	for i := range changed {
		write(tree, i, append(text(i), "one more\n"...))
	}
	return newRig(b, base, tree)
}

func benchmark(b *testing.B, count, changed int, formats ...Format) {
	r := large(b, count, changed)
	for _, f := range formats {
		b.Run(string(f), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				o := r.options(b, f)
				totals, err := Write(b.Context(), o, io.Discard)
				o.Base.Close()
				o.Tree.Close()
				if err != nil || totals.Files != changed {
					b.Fatal(totals, err)
				}
			}
		})
	}
}

// A tree of 200,000 files, of which 10 differ.
func BenchmarkLargeTree(b *testing.B) { benchmark(b, 200_000, 10, List) }

// A tree of 20,000 files, of which 10,000 differ.
func BenchmarkManyChanges(b *testing.B) { benchmark(b, 20_000, 10_000, List, Archive, Patch) }
