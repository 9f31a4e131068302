package replace

import (
	"bytes"
	"context"
	"unicode/utf8"

	"github.com/agnivade/levenshtein"
)

// maxCompared is the longest line, in bytes, that is compared character by
// character: the cost is the product of both lengths. Longer ones are compared
// by what they have in common at both ends.
const maxCompared = 2000

// maxWhole is maxCompared for blocks of lines that are compared as one text.
const maxWhole = 20000

// similarity is between 0 and 1: how little of the longer text has to change to
// make one of the other. Texts of more bytes than limit are compared at their ends.
func (f *finder) similarity(a, b []byte, limit int) (float64, error) {
	if err := f.spendOn(b); err != nil {
		return 0, err
	}
	if bytes.Equal(a, b) {
		return 1, nil
	}
	if max(len(a), len(b)) > limit {
		if err := f.spend(min(len(a), len(b))); err != nil {
			return 0, err
		}
		head := commonPrefix(a, b)
		same := head + commonSuffix(a[head:], b[head:])
		return float64(same) / float64(max(len(a), len(b))), nil
	}
	if err := f.spend(len(a) * len(b)); err != nil {
		return 0, err
	}
	longest := max(utf8.RuneCount(a), utf8.RuneCount(b))
	return 1 - float64(levenshtein.ComputeDistance(string(a), string(b)))/float64(longest), nil
}

// spendOn is spend for looking at a text once, with what finding it costs.
func (f *finder) spendOn(text []byte) error { return f.spend(32 + len(text)) }

// spend takes steps off what the query may still do.
func (f *finder) spend(steps int) error {
	f.work -= steps
	if f.work < 0 {
		return errWork
	}
	if f.work>>20 != (f.work+steps)>>20 && f.ctx.Err() != nil {
		return context.Cause(f.ctx)
	}
	return nil
}
