package textdiff

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/aymanbagabas/go-udiff/lcs"
)

// moreLooks bounds how often compare looks at what a first comparison gave up on: each
// finds about a hundred differences.
const moreLooks = 64

// Hunks appends the hunks of the unified diff of two whole texts to out, byte for byte,
// and counts lines; a nil out has them counted only. It takes about 40 bytes of memory
// for each line and twice the texts' size.
func Hunks(out *bytes.Buffer, old, new []byte) Stat {
	a, b := splitLines(old), splitLines(new)
	diffs := compare(a, b)
	if out != nil {
		writeHunks(out, a, b, diffs, 0, 0)
	}
	return count(diffs)
}

func count(diffs []lcs.Diff) (stat Stat) {
	for _, d := range diffs {
		stat.Removed += d.End - d.Start
		stat.Added += d.ReplEnd - d.ReplStart
	}
	return stat
}

func splitLines(text []byte) []string {
	if len(text) == 0 {
		return nil
	}
	lines := strings.SplitAfter(string(text), "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// compare finds the lines that differ.
func compare(a, b []string) []lcs.Diff {
	looks := moreLooks
	return compareAgain(a, b, &looks)
}

// compareAgain compares by lcs, which is bounded and gives what is left as one piece, in
// which it is asked again as long as it finds something.
func compareAgain(a, b []string, looks *int) []lcs.Diff {
	var all []lcs.Diff
	diffs := lcs.DiffLines(a, b)
	for _, d := range diffs {
		removed, added := d.End-d.Start, d.ReplEnd-d.ReplStart
		if len(diffs) == 1 && removed == len(a) && added == len(b) || min(removed, added) <= 1 || *looks == 0 {
			all = append(all, d)
			continue
		}
		*looks--
		for _, within := range compareAgain(a[d.Start:d.End], b[d.ReplStart:d.ReplEnd], looks) {
			all = append(all, lcs.Diff{
				Start: d.Start + within.Start, End: d.Start + within.End,
				ReplStart: d.ReplStart + within.ReplStart, ReplEnd: d.ReplStart + within.ReplEnd,
			})
		}
	}
	return all
}

// writeHunks writes the differences of two lists of lines, before which texts have as many
// others as oldLine and newLine say.
func writeHunks(out *bytes.Buffer, a, b []string, diffs []lcs.Diff, oldLine, newLine int) {
	for len(diffs) > 0 {
		n := 1
		for n < len(diffs) && diffs[n].Start-diffs[n-1].End <= 2*context {
			n++
		}
		first, last := diffs[0], diffs[n-1]
		before, after := min(first.Start, context), min(len(a)-last.End, context)
		from, to := first.Start-before, first.ReplStart-before
		writeHead(out, oldLine+from+1, last.End+after-from, newLine+to+1, last.ReplEnd+after-to)
		at := from
		for _, d := range diffs[:n] {
			writeLines(out, ' ', a[at:d.Start])
			writeLines(out, '-', a[d.Start:d.End])
			writeLines(out, '+', b[d.ReplStart:d.ReplEnd])
			at = d.End
		}
		writeLines(out, ' ', a[at:at+after])
		diffs = diffs[n:]
	}
}

// writeHead writes the first line of a hunk: where it begins and how many lines it has.
func writeHead(out *bytes.Buffer, from, removed, to, added int) {
	fmt.Fprintf(out, "@@ -%s +%s @@\n", span(from, removed), span(to, added))
}

func writeLines(out *bytes.Buffer, mark byte, lines []string) {
	for _, l := range lines {
		writeLine(out, mark, l)
	}
}

func writeLine(out *bytes.Buffer, mark byte, line string) {
	out.WriteByte(mark)
	out.WriteString(line)
	if !strings.HasSuffix(line, "\n") {
		out.WriteString("\n\\ No newline at end of file\n")
	}
}
