package call

import (
	"cmp"
	"path/filepath"
	"sync"

	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/tool"
)

// steps are what the calls of one session go through, step by step; do has them in order.
type steps struct {
	*site
	slots   slots
	live    *live
	results *results

	// telling is held, shared, from when the end of a call can be seen until it is
	// in the store. Nobody waits for a client under it.
	telling sync.RWMutex
}

// pagedBytes is how many times as long as other outputs one may be that its tool
// has cut to size itself.
const pagedBytes = 4

// outputOf makes the keeper of a call's output.
func (s *site) outputOf(id string, def *tool.Definition, split bool) *output.Output {
	set := s.daemon.Settings()
	t, ok := set.ProfileTruncate[s.profile()]
	if !ok {
		t = set.Truncate
	}
	t.Direction = cmp.Or(t.Direction, def.Truncate)
	if def.Paged {
		// A page is left alone; what claims to be one and is far too long is not.
		t.MaxBytes *= pagedBytes
		t.MaxLines = t.MaxBytes
	}
	return output.New(output.Config{Limits: t, Path: filepath.Join(s.outDir, id), Used: &s.Spilled, MinFree: set.MinFree, Split: split})
}
