package session

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/sandbox"
)

// gauges say what the tools of a session use, and which limits they ran into.
type gauges struct {
	sandbox func() sandbox.Sandbox // nil while there is none
	agent   *agent.Runner
	used    *used // what its tenant used
	limit   int64 // of memory, in bytes; 0 = none
	log     *slog.Logger
	ctx     context.Context //nolint:containedctx // the life of the session

	starved atomic.Int64 // programs that the agent has ended for memory

	mu      sync.Mutex // guards counted
	counted kills      // by the kernel, when it was last asked

	measuring sync.Mutex // guards last
	last      reading
}

// kills is what the kernel has counted against the session's tools.
type kills struct{ memory, pids int64 }

// reading is what the counters of a sandbox say.
type reading struct {
	cpuMillis, ioBytes, oomKills int64 // since it was made
	memoryBytes, layerBytes      int64 // now
}

// read asks the sandbox; false when there is none, or none any more.
func (g *gauges) read(ctx context.Context) (reading, bool) {
	sb := g.sandbox()
	if sb == nil {
		return reading{}, false
	}
	u, err := sb.Usage(ctx)
	if err != nil {
		return reading{}, false
	}
	r := reading{cpuMillis: u.CPUMillis, memoryBytes: u.MemoryBytes, layerBytes: u.DiskBytes, oomKills: sb.OOMKills() + g.starved.Load()}
	if m, ok := sb.(sandbox.Meter); ok {
		r.ioBytes = m.IOBytes()
	}
	return r, true
}

// measure adds what the sandbox used since the last time to what its tenant used,
// and says how much it has now.
func (g *gauges) measure(ctx context.Context) (memoryBytes, layerBytes int64) {
	g.measuring.Lock()
	defer g.measuring.Unlock()
	last := &g.last
	if ctx.Err() != nil {
		return last.memoryBytes, last.layerBytes
	}
	now, ok := g.read(ctx)
	if !ok {
		return 0, 0
	}
	for _, c := range []struct {
		total *atomic.Int64
		last  *int64
		now   int64
	}{
		{&g.used.cpuMillis, &last.cpuMillis, now.cpuMillis},
		{&g.used.ioBytes, &last.ioBytes, now.ioBytes},
		{&g.used.oomKills, &last.oomKills, now.oomKills},
	} {
		if c.now > *c.last { // a counter that cannot be read any more says 0
			c.total.Add(c.now - *c.last)
			*c.last = c.now
		}
	}
	last.memoryBytes, last.layerBytes = now.memoryBytes, now.layerBytes
	return now.memoryBytes, now.layerBytes
}

// from counts what the sandbox uses from now on. What it used under an
// earlier daemon was counted by that one, whose counters have ended with it.
func (g *gauges) from(ctx context.Context) {
	g.measuring.Lock()
	defer g.measuring.Unlock()
	if now, ok := g.read(ctx); ok {
		g.last = now
	}
}

// Killed implements call.Place: it says whether the kernel counted anything since it was last asked.
func (g *gauges) Killed() (memory, pids bool) {
	sb := g.sandbox()
	now := kills{memory: sb.OOMKills(), pids: sb.PIDsHits()}
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.counted
	g.counted = kills{memory: max(now.memory, before.memory), pids: max(now.pids, before.pids)}
	return now.memory > before.memory, now.pids > before.pids
}

// Starved implements call.Place.
func (g *gauges) Starved() { g.starved.Add(1) }

// freeTmpTime bounds the emptying of the tmpfs directories.
const freeTmpTime = 10 * time.Second

// A kernel takes its time to give memory back: gVisor's up to half a second after
// its programs have ended. Only what stays longer is in files.
const (
	givesBack      = time.Second
	givesBackPause = 20 * time.Millisecond
)

// FreeTmp implements call.Place: it empties the sandbox's tmpfs directories when the tools' memory stays
// at its limit although the call is over: files in memory cannot be killed, and
// the next call would die as it starts.
func (g *gauges) FreeTmp() bool {
	ctx, cancel := context.WithTimeout(g.ctx, freeTmpTime)
	defer cancel()
	// Counted in looks: a host that stands still gives nothing back meanwhile.
	for range givesBack / givesBackPause {
		if !g.full(ctx) {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(givesBackPause):
		}
	}
	if !g.full(ctx) {
		return false
	}
	l, err := g.agent.Link()
	if err != nil {
		return false
	}
	if err := l.FreeTmp(ctx, g.limit/4); err != nil {
		g.log.Info("the tmpfs directories stay as they are", "error", err)
		return false
	}
	return true
}

// full says whether the tools' memory is at its limit, or next to it.
func (g *gauges) full(ctx context.Context) bool {
	u, err := g.sandbox().Usage(ctx)
	return err == nil && g.limit > 0 && u.MemoryBytes >= g.limit-g.limit/8
}
