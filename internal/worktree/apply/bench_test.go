package apply

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
)

// BenchmarkApply writes 10,000 changes: half of them new, in 100 directories. Of the others the bases are kept, or not.
func BenchmarkApply(b *testing.B) {
	b.Run("no bases", func(b *testing.B) { benchmarkApply(b, false) })
	b.Run("bases", func(b *testing.B) { benchmarkApply(b, true) })
}

func benchmarkApply(b *testing.B, kept bool) {
	const n = 10_000
	old, now := make(map[string]string), make(map[string]string)
	for i := range n {
		name := fmt.Sprintf("dir%d/file%d", i%100, i)
		if now[name] = "new content of " + name; i%2 == 0 {
			old[name] = "old"
		}
	}
	for b.Loop() {
		b.StopTimer()
		g := begin(b, tree(b, old))
		write(b, g.work, now)
		archive := archiveOf(b, g.source, g.work)
		if kept {
			l := &Look{Dir: g.job.Dir, Source: g.job.Source, Owner: g.job.Owner, Since: g.job.Since}
			_, _, err := l.Keep(b.Context(), slices.Sorted(maps.Keys(old)), 1<<20)
			must(b, err)
		}
		unix.Sync() // what is not on the disk yet
		b.StartTimer()
		j := g.job
		j.Request = client.ApplyRequest{}
		a, err := j.Run(b.Context(), bytes.NewReader(archive))
		must(b, err)
		if a.WrittenCount < n {
			b.Fatalf("%d were written", a.WrittenCount)
		}
		b.StopTimer()
		wipe(b, g.source)
		wipe(b, g.work)
		wipe(b, g.base)
		b.StartTimer()
	}
}
