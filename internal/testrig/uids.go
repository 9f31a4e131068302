package testrig

import (
	"fmt"
	"net"
	"os"
	"testing"
)

// RangeSize is how many ids a session has, and UIDRanges is how many such ranges a test
// claims at a time.
const (
	RangeSize = 65536
	UIDRanges = 64
)

// The ids of tests lie below those of the demonstration, of private daemons and of the
// system's daemon.
const (
	firstUID = 0x4100_0000
	uidSlots = 64
)

// UIDs claims ids of the host that no other test of this machine has while t runs, and
// gives the first of UIDRanges ranges. An abstract socket is the claim, which the kernel
// lets go of when the process ends.
func UIDs(t testing.TB) uint32 {
	t.Helper()
	base, release, err := ClaimUIDs()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return base
}

// ClaimUIDs is UIDs for who has no test; release gives them back.
func ClaimUIDs() (base uint32, release func(), err error) {
	if !Soon(func() bool {
		for i := range uint32(uidSlots) {
			slot := (uint32(os.Getpid())*7 + i) % uidSlots
			if lock, err := net.Listen("unix", fmt.Sprintf("@toold-test-uids-%d", slot)); err == nil {
				base, release = firstUID+slot*UIDRanges*RangeSize, func() { _ = lock.Close() }
				return true
			}
		}
		return false
	}) {
		return 0, nil, fmt.Errorf("other tests have all %d blocks of uids", uidSlots)
	}
	return base, release, nil
}
