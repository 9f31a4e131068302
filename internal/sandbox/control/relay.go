package control

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// relayName is where an agent dials with the connections of tools.
const relayName = "network"

// portTime bounds the two bytes with which each of its connections begins.
const portTime = 5 * time.Second

// Relay gives connections that an agent passes on from tools.
type Relay struct {
	l    *net.UnixListener
	peer func(*unix.Ucred) error
}

// ListenRelay is Listen for them.
func ListenRelay(dir string, peer func(*unix.Ucred) error) (*Relay, error) {
	l, err := listen(dir, relayName)
	if err != nil {
		return nil, fmt.Errorf("listen in control directory %s: %w", dir, err)
	}
	return &Relay{l, peer}, nil
}

// Accept implements sandbox.Relay. A stranger's connection, and one that does not say its port,
// is an error that says nothing of the next.
func (r *Relay) Accept() (*net.UnixConn, uint16, error) {
	c, err := r.l.AcceptUnix()
	if err != nil {
		return nil, 0, err
	}
	if !isPeer(c, r.peer) {
		return nil, 0, errors.Join(errors.New("a stranger dialled"), c.Close())
	}
	var port [2]byte
	err = c.SetReadDeadline(time.Now().Add(portTime))
	if err == nil {
		_, err = io.ReadFull(c, port[:])
	}
	if err == nil {
		err = c.SetReadDeadline(time.Time{})
	}
	if err != nil {
		return nil, 0, errors.Join(err, c.Close())
	}
	return c, binary.BigEndian.Uint16(port[:]), nil
}

// Close implements sandbox.Relay.
func (r *Relay) Close() error { return r.l.Close() }
