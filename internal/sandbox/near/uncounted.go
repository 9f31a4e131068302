package near

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Uncounted implements sandbox.Uncounted.
func (s *Sandbox) Uncounted(most int64) (int64, error) {
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
	sum := sockets + queued(string(netlink))
	tcp, err := s.unaccepted(most - sum)
	if err != nil {
		err = s.failed("TCP connections", err)
	}
	return sum + tcp, err
}

// fewConnections is how many TCP sockets a session has whose list is not worth reading: together they
// keep less than a third of what it may have.
const fewConnections = 16

// unaccepted is what TCP connections have received that no program has accepted yet. The kernel
// counts a connection as somebody's memory when it is accepted, not before. It stops to count where
// there is more than most.
func (s *Sandbox) unaccepted(most int64) (sum int64, err error) {
	open, err := s.Proc.Read("net/sockstat")
	if err != nil {
		return 0, err
	}
	four := inUse(string(open), "TCP")
	open, err = s.Proc.Read("net/sockstat6")
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a host without IPv6
		return 0, err
	}
	six := inUse(string(open), "TCP6")
	if four+six <= fewConnections {
		return 0, nil // the lists take the kernel longer
	}
	for name, n := range map[string]int64{"net/tcp": four, "net/tcp6": six} {
		if n == 0 {
			continue
		}
		list, err := s.Proc.Open(name, unix.O_RDONLY)
		if err != nil {
			return sum, err
		}
		sum += pending(list, n, most-sum)
		list.Close()
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

// longList (bytes) is as much as is read of a list of sockets.
const longList = 1 << 20

// pending adds up what was received by those TCP sockets of a list of the kernel's that no program
// has, until it is more than most. Those of all that there are which are not read, since the list is too
// long, count as much as netlink sockets do at least.
func pending(list io.Reader, all, most int64) (sum int64) {
	const state, queues, inode = 3, 4, 9 // columns; of the queues sent:received, in hexadecimal
	const listens = "0A"
	listed := int64(-1)
	for lines := bufio.NewScanner(io.LimitReader(list, longList)); sum <= most && lines.Scan(); {
		listed++
		if f := strings.Fields(lines.Text()); len(f) > inode && f[inode] == "0" && f[state] != listens {
			_, in, _ := strings.Cut(f[queues], ":")
			n, _ := strconv.ParseInt(in, 16, 64)
			sum += n
		}
	}
	if sum > most {
		return sum
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
