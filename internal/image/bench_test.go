package image

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// BenchmarkUnpack unpacks a layer of 5,000 files of 8 KiB in 500 directories, in
// memory.
func BenchmarkUnpack(b *testing.B) {
	needRoot(b)
	content := strings.Repeat("some text of a program\n", 8<<10/23)
	var entries []tarEntry
	for d := range 500 {
		entries = append(entries, numbered(d))
		for f := range 10 {
			entries = append(entries, file(fmt.Sprintf("d%d/file%d", d, f), content))
		}
	}
	raw := tarOf(b, entries...)
	top := detachedTmpfs(b, "512m", "200000")
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		path := filepath.Join(top, "rootfs")
		if err := unpackTo(b.Context(), path, Limits{}, raw); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := os.RemoveAll(path); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(len(entries))*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
}
