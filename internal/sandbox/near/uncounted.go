package near

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"
)

// Uncounted implements sandbox.Uncounted.
//
// What UDP sockets have received counts in it with v2 too, where most of it is memory: nothing
// tells apart what lies in their error queues (IP_RECVERR), which is counted for nobody. With v1 most
// of it is in SocketBytes, and counts once.
func (s *Sandbox) Uncounted() (int64, error) {
	if s.Enclosed {
		return 0, nil // its kernel is a program, and what that keeps is memory
	}
	var sockets int64
	if s.Tree != nil {
		sockets = s.Tree.SocketBytes(s.Group)
	}
	netlink, err := s.Proc.Read("net/netlink")
	if err != nil {
		return sockets, s.failed("netlink sockets", err)
	}
	udp, err := s.received()
	if err != nil {
		err = s.failed("UDP sockets", err)
	}
	return max(sockets, udp) + queued(string(netlink)), err
}

// received is what UDP sockets have received and nobody has read.
func (s *Sandbox) received() (sum int64, err error) {
	for _, version := range []string{"", "6"} {
		open, err := s.Proc.Read("net/sockstat" + version)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a host without IPv6
		}
		if err != nil {
			return sum, err
		}
		for _, protocol := range []string{"udp", "udplite"} {
			n := inUse(string(open), strings.ToUpper(protocol)+version)
			if n == 0 {
				continue // the list takes the kernel longer
			}
			list, err := s.Proc.Read("net/" + protocol + version)
			if err != nil {
				return sum, err
			}
			sum += unread(string(list), n)
		}
	}
	return sum, nil
}

// inUse is how many sockets of a protocol are in a summary of the kernel's.
func inUse(summary, protocol string) int64 {
	_, rest, _ := strings.Cut("\n"+summary, "\n"+protocol+": inuse ")
	number, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	number, _, _ = strings.Cut(number, " ")
	n, _ := strconv.ParseInt(number, 10, 64)
	return n
}

// unread adds up what waits in the UDP sockets of a list of the kernel's. Those of all that there
// are which it does not have, since Read cuts it, count as much as netlink sockets do at least.
func unread(list string, all int64) (sum int64) {
	const queues = 4 // a column: sent:received, in hexadecimal
	listed := int64(-1)
	for line := range strings.Lines(list) {
		listed++
		if f := strings.Fields(line); len(f) > queues {
			_, in, _ := strings.Cut(f[queues], ":")
			n, _ := strconv.ParseInt(in, 16, 64)
			sum += n
		}
	}
	return sum + max(0, all-max(0, listed))*perSocket
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
