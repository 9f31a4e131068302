package near

import (
	"strconv"
	"strings"
)

// Uncounted implements sandbox.Uncounted.
func (s *Sandbox) Uncounted() (int64, error) {
	if s.Enclosed {
		return 0, nil // its kernel is a program, and what that keeps is memory
	}
	var sum int64
	if s.Tree != nil {
		sum = s.Tree.SocketBytes(s.Group)
	}
	list, err := s.Proc.Read("net/netlink")
	if err != nil {
		return sum, s.failed("netlink sockets", err)
	}
	return sum + queued(string(list)), nil
}

// perSocket (bytes) is what a netlink socket counts as at least. Each can be filled with several
// times as much in less than a millisecond, so that many which are still empty are too much.
const perSocket = 64 << 10

// queued adds up what waits in the netlink sockets of a list of the kernel's. A list that Read cuts
// has more sockets than a session may have.
func queued(list string) (sum int64) {
	const received, sent = 4, 5 // columns
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if len(f) <= sent {
			continue
		}
		in, err := strconv.ParseInt(f[received], 10, 64)
		if err != nil {
			continue // the line above the columns
		}
		out, _ := strconv.ParseInt(f[sent], 10, 64)
		sum += max(perSocket, in+out)
	}
	return sum
}
