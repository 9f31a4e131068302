// Package socks is the server's end of how a SOCKS5 connection begins, RFC 1928: CONNECT
// without authentication, by name or by address.
package socks

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/toold/toold/internal/endpoint"
)

// Reply is what a client is told.
type Reply byte

// Replies of the RFC.
const (
	Granted     Reply = 0
	Failed      Reply = 1
	NotAllowed  Reply = 2
	Unreachable Reply = 4
	badCommand  Reply = 7
	badAddress  Reply = 8
)

const (
	version  = 5
	noAuth   = 0
	noMethod = 0xff
	connect  = 1
	typeIPv4 = 1
	typeName = 3
	typeIPv6 = 4
)

// Read reads which methods a client has, and then where it wants to go, byte by byte: nothing
// behind that is taken. On an error the client has been told what there was to tell.
func Read(c io.ReadWriter) (endpoint.Endpoint, error) {
	var none endpoint.Endpoint
	head := make([]byte, 2)
	if _, err := io.ReadFull(c, head); err != nil {
		return none, err
	}
	if head[0] != version {
		return none, fmt.Errorf("SOCKS version %d; only 5 is spoken here", head[0])
	}
	methods := make([]byte, head[1])
	if _, err := io.ReadFull(c, methods); err != nil {
		return none, err
	}
	method := byte(noMethod)
	for _, m := range methods {
		if m == noAuth {
			method = noAuth
		}
	}
	if _, err := c.Write([]byte{version, method}); err != nil {
		return none, err
	}
	if method == noMethod {
		return none, errors.New("the client has no SOCKS method without authentication")
	}
	to, reply, err := readRequest(c)
	if err != nil && reply != Granted {
		err = errors.Join(err, Answer(c, reply))
	}
	return to, err
}

// readRequest gives with an error what the client is to be told, Granted for nothing.
func readRequest(c io.Reader) (endpoint.Endpoint, Reply, error) {
	var none endpoint.Endpoint
	head := make([]byte, 4)
	if _, err := io.ReadFull(c, head); err != nil {
		return none, Granted, err
	}
	if head[0] != version || head[2] != 0 {
		return none, Failed, errors.New("a malformed SOCKS request")
	}
	host, reply, err := readHost(c, head[3])
	if err != nil {
		return none, reply, err
	}
	port := make([]byte, 2)
	if _, err := io.ReadFull(c, port); err != nil {
		return none, Granted, err
	}
	to := endpoint.Endpoint{Host: host, Port: binary.BigEndian.Uint16(port)}
	switch {
	case head[1] != connect:
		return none, badCommand, fmt.Errorf("SOCKS command %d; only CONNECT (1) is done here", head[1])
	case to.Port == 0:
		return none, Failed, errors.New("a SOCKS request for port 0")
	}
	return to, Granted, nil
}

func readHost(c io.Reader, kind byte) (endpoint.Host, Reply, error) {
	size := make([]byte, 1)
	switch kind {
	case typeIPv4:
		size[0] = 4
	case typeIPv6:
		size[0] = 16
	case typeName:
		if _, err := io.ReadFull(c, size); err != nil {
			return endpoint.Host{}, Granted, err
		}
	default:
		return endpoint.Host{}, badAddress, fmt.Errorf("SOCKS address type %d", kind)
	}
	text := make([]byte, size[0])
	if _, err := io.ReadFull(c, text); err != nil {
		return endpoint.Host{}, Granted, err
	}
	if a, ok := netip.AddrFromSlice(text); ok && kind != typeName {
		return endpoint.HostOf(a), Granted, nil
	}
	host, err := endpoint.ParseHost(string(text))
	return host, badAddress, err
}

// Answer tells the client how its request has ended.
func Answer(c io.Writer, r Reply) error {
	_, err := c.Write([]byte{version, byte(r), 0, typeIPv4, 0, 0, 0, 0, 0, 0})
	return err
}
