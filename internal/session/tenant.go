package session

import (
	"sync"
	"sync/atomic"

	"github.com/toold/toold/internal/call"
)

// tenant counts what one tenant has.
type tenant struct {
	call.Tenant
	sessions int        // live or being made; guarded by roster.mu
	queue    queue      // for a place among them; guarded by roster.mu
	used     used       // by all its sessions, those that are over included
	making   sync.Mutex // held while room is made for them
}

// used adds up what the sessions of a tenant used since the daemon began. Each
// number only rises, whatever sessions end and whatever a counter says.
type used struct{ cpuMillis, ioBytes, oomKills atomic.Int64 }
