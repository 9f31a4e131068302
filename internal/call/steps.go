package call

import (
	"cmp"
	"path/filepath"
	"sync"

	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/habit"
	"github.com/toold/toold/internal/tool"
)

// steps are what the calls of one session go through, step by step; do has them in order.
type steps struct {
	*site
	slots slots
	live  *live

	// telling is held, shared, from when the end of a call can be seen until it is
	// in the store. Nobody waits for a client under it.
	telling sync.RWMutex
}

// pagedBytes is how many times as long as other outputs one may be that its tool
// has cut to size itself.
const pagedBytes = 4

// besides is how long what stands beside each output of a shared answer may be, in bytes.
const besides = 1 << 10

// isOf says which tool it is a call of: who runs it, and how its output is kept.
func (c *Call) isOf(def *tool.Definition) {
	s := c.at
	c.def, c.runner = def, s.runners[def.By]
	c.durable, _ = c.runner.(Durable)
	c.private = ofPeople(def, c.row.Typed) && !def.Command
	set := s.daemon.Settings()
	t := set.Truncate.With(set.ProfileTruncate[c.profile]).With(set.ToolTruncate[def.Name])
	if t.Direction == "auto" {
		t.Direction = ""
	}
	t.Direction = cmp.Or(t.Direction, def.Truncate)
	page := t.MaxBytes * pagedBytes
	if most := c.passes(); most > 0 && most < page {
		t.MaxBytes, page = min(most, t.MaxBytes), most
	}
	if def.Paged {
		// A page is left alone; what claims to be one and is far too long is not.
		t.MaxBytes, t.MaxLines = page, page
	}
	if c.share > 0 {
		t.MaxBytes = min(t.MaxBytes, max(page/c.share-besides, page/(2*c.share)))
	}
	c.out = output.New(output.Config{Limits: t, Path: filepath.Join(s.outDir, c.id), Used: &s.Spilled, Room: s.daemon.Quota.KeepRoom, Split: c.stream.Split, Screen: def.Command, Private: c.private})
}

// passes is how many bytes of an output its agent passes on to the model; 0 = all.
func (c *Call) passes() int { return habit.Of(c.row.Agent).Output() }
