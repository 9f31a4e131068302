package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// The host uids that private daemons give to their sessions lie below those of
// a daemon of the system (sandbox.uid_base), 65,536 for each daemon, so that no
// two sandboxes of this host have a uid in common.
const (
	privateUIDBase = 0x6000_0000
	privateUIDs    = 0x1000_0000
	uidRange       = 65536
)

// uidClaim keeps a range of uids from other private daemons. Its lock is the
// name of an abstract socket: the kernel gives it back when this process ends,
// however that happens.
type uidClaim struct {
	base int
	lock net.Listener
}

func claimUIDs() (*uidClaim, error) {
	const slots = privateUIDs / uidRange
	for i := range slots {
		base := privateUIDBase + (os.Getpid()+i)%slots*uidRange
		lock, err := net.Listen("unix", fmt.Sprintf("@toold-private-uids-%d", base))
		if err == nil {
			return &uidClaim{base, lock}, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("claim user ids for the private daemon: %w", err)
		}
	}
	return nil, errors.New("claim user ids for the private daemon: too many of them run at once")
}

func (c *uidClaim) release() error { return c.lock.Close() }
