package agent

import "time"

// pace slows the reader of an agent that sends a flood of frames, so that one
// session cannot take a whole processor of the daemon's. A frame costs one for
// itself and one for each paceBytes: what is paid for its length lets pass far
// more than a command writes and a sink takes.
type pace struct {
	cost  int
	since time.Time
}

const (
	paceFrames = 1024
	paceBytes  = 16 << 10
	paceTime   = 20 * time.Millisecond // for paceFrames
)

func (p *pace) frame(size int, done <-chan struct{}) {
	if p.cost += 1 + size/paceBytes; p.cost < paceFrames {
		return
	}
	p.cost = 0
	now := time.Now()
	if rest := paceTime - now.Sub(p.since); rest > 0 {
		select {
		case <-time.After(rest):
		case <-done:
		}
	}
	p.since = time.Now()
}

const (
	// updateRate is how many updates of metadata one call may send in a second;
	// an honest agent sends half of them.
	updateRate = 20
	// updateBurst is how many may come at once. When the daemon was stopped for a
	// while, all that fits into the socket and the reader's buffer is waiting.
	updateBurst = 600
)
