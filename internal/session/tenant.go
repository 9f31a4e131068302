package session

import (
	"sync"
	"sync/atomic"

	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/egress"
	"github.com/toold/toold/internal/session/queue"
)

// tenant counts what one tenant has.
type tenant struct {
	call.Tenant
	places *queue.Places // of its sessions, live or being made
	used   used          // by all its sessions, those that are over included
	making sync.Mutex    // held while room is made for them
	egress *egress.Share // of the networks of its sessions
}

// used adds up what the sessions of a tenant used since the daemon began. Each
// number only rises, whatever sessions end and whatever a counter says.
type used struct{ cpuMillis, ioBytes, oomKills atomic.Int64 }
