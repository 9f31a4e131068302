package resolver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync"
)

// Space is where the addresses of names come from: RFC 2544 keeps it for tests of devices, and no
// host of the Internet has one of it.
var Space = netip.MustParsePrefix("198.18.0.0/15")

// MaxNames is how many names one session can have.
const MaxNames = 1<<17 - 2

// ErrFull says that a session has looked up as many names as it may.
var ErrFull = errors.New("this session has looked up as many names as it may")

// Names are the names that a session has looked up, with an address each. An address is never
// given to a second name, also not by a later daemon. Its methods may be called from any goroutine.
type Names struct {
	max int
	log *os.File // nil: in memory alone

	mu     sync.Mutex // guards the fields below
	byName map[string]int
	names  []string
}

// OpenNames makes Names for at most max names; log, which Names does not close, keeps them for
// the next daemon, a line each; nil keeps them nowhere.
func OpenNames(max int, log *os.File) (*Names, error) {
	n := &Names{max: min(max, MaxNames), log: log, byName: make(map[string]int)}
	if log == nil {
		return n, nil
	}
	if err := n.read(); err != nil {
		return nil, fmt.Errorf("read the names of the session: %w", err)
	}
	return n, nil
}

// read takes what earlier daemons have written. A line without an end was never answered.
func (n *Names) read() error {
	if _, err := n.log.Seek(0, io.SeekStart); err != nil {
		return err
	}
	in := bufio.NewReaderSize(io.LimitReader(n.log, MaxNames*256), 4096)
	var whole int64
	for len(n.names) < MaxNames {
		line, err := in.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		name, ended := strings.CutSuffix(line, "\n")
		if !ended {
			break
		}
		whole += int64(len(line))
		n.byName[name] = len(n.names)
		n.names = append(n.names, name)
	}
	if err := n.log.Truncate(whole); err != nil {
		return err
	}
	_, err := n.log.Seek(whole, io.SeekStart)
	return err
}

// Address gives the address of a name, which is in its canonical form.
func (n *Names) Address(name string) (netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, ok := n.byName[name]
	if !ok {
		if i = len(n.names); i >= n.max {
			return netip.Addr{}, ErrFull
		}
		if n.log != nil {
			if _, err := n.log.WriteString(name + "\n"); err != nil {
				n.max = i // what was written of it is unknown: no further name
				return netip.Addr{}, fmt.Errorf("keep the name: %w", err)
			}
		}
		n.byName[name], n.names = i, append(n.names, name)
	}
	b := Space.Addr().As4()
	i++
	return netip.AddrFrom4([4]byte{b[0], b[1] + byte(i>>16), byte(i >> 8), byte(i)}), nil
}

// Name gives the name that has an address.
func (n *Names) Name(a netip.Addr) (string, bool) {
	if !Space.Contains(a) {
		return "", false
	}
	b := a.As4()
	i := int(b[1]&1)<<16 + int(b[2])<<8 + int(b[3]) - 1
	n.mu.Lock()
	defer n.mu.Unlock()
	if i < 0 || i >= len(n.names) {
		return "", false
	}
	return n.names[i], true
}
