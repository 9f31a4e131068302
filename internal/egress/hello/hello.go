// Package hello reads the server name from the ClientHello with which a TLS connection
// begins. All that it reads is hostile: it is bounded, and in doubt an error.
package hello

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// maxHello bounds the bytes of a ClientHello with its record headers. Post-quantum keys make
// some of two kilobytes.
const maxHello = 32 << 10

// Errors of what is no plain ClientHello.
var (
	ErrNotTLS = errors.New("it does not begin with a TLS ClientHello")
	errLong   = fmt.Errorf("its ClientHello has more than %d bytes", maxHello)
	errShape  = errors.New("its ClientHello is malformed")
)

// Record and handshake types, RFC 8446.
const (
	recordHandshake = 22
	clientHello     = 1
	extensionName   = 0
	nameHost        = 0
	maxRecord       = 1 << 14
)

// Read reads a whole ClientHello from r, and gives the name in it, "" where it names no server,
// and all the bytes that it took from r: these are to be sent on, whatever the error.
func Read(r io.Reader) (name string, taken []byte, err error) {
	var all bytes.Buffer
	name, err = read(io.TeeReader(r, &all))
	return name, all.Bytes(), err
}

func read(r io.Reader) (string, error) {
	var message []byte
	took := 0
	for {
		head := make([]byte, 5)
		if n, err := io.ReadFull(r, head[:1]); n == 1 && head[0] != recordHandshake {
			return "", ErrNotTLS // at once: it may be all that the client sends
		} else if err != nil {
			return "", err
		}
		if _, err := io.ReadFull(r, head[1:]); err != nil {
			return "", err
		}
		size := int(binary.BigEndian.Uint16(head[3:]))
		if head[1] != 3 || size == 0 || size > maxRecord {
			return "", ErrNotTLS
		}
		if took += len(head) + size; took > maxHello {
			return "", errLong
		}
		record := make([]byte, size)
		if _, err := io.ReadFull(r, record); err != nil {
			return "", err
		}
		message = append(message, record...)
		if message[0] != clientHello {
			return "", ErrNotTLS
		}
		if len(message) < 4 {
			continue
		}
		want := 4 + (int(message[1])<<16 | int(message[2])<<8 | int(message[3]))
		if want > maxHello {
			return "", errLong
		}
		if len(message) > want {
			return "", errShape // nothing may follow it before an answer
		}
		if len(message) == want {
			return serverName(message[4:])
		}
	}
}

// cursor takes fields off the front; once it is short it is short for good.
type cursor struct {
	rest  []byte
	short bool
}

func (c *cursor) take(n int) []byte {
	if n > len(c.rest) {
		c.short, c.rest = true, nil
		return nil
	}
	p := c.rest[:n]
	c.rest = c.rest[n:]
	return p
}

// list takes a field with its length before it, in so many bytes.
func (c *cursor) list(bytes int) cursor {
	n := 0
	for _, b := range c.take(bytes) {
		n = n<<8 | int(b)
	}
	p := c.take(n)
	return cursor{rest: p, short: c.short}
}

// serverName reads the body of a ClientHello.
func serverName(body []byte) (string, error) {
	c := cursor{rest: body}
	c.take(2 + 32) // version, random
	c.list(1)      // session
	suites := c.list(2)
	c.list(1) // compression
	if c.short || suites.short || len(suites.rest) == 0 {
		return "", errShape
	}
	if len(c.rest) == 0 {
		return "", nil // no extensions
	}
	all := c.list(2)
	if c.short || len(c.rest) > 0 {
		return "", errShape
	}
	name, seen := "", false
	for len(all.rest) > 0 {
		kind := all.take(2)
		data := all.list(2)
		if all.short || data.short {
			return "", errShape
		}
		if binary.BigEndian.Uint16(kind) != extensionName {
			continue
		}
		if seen {
			return "", errShape
		}
		var err error
		if name, err = hostName(data); err != nil {
			return "", err
		}
		seen = true
	}
	return name, nil
}

// hostName reads the extension: a list with one name in it.
func hostName(data cursor) (string, error) {
	list := data.list(2)
	if data.short || len(data.rest) > 0 {
		return "", errShape
	}
	kind := list.take(1)
	name := list.list(2)
	if list.short || name.short || len(list.rest) > 0 || kind[0] != nameHost || len(name.rest) == 0 {
		return "", errShape
	}
	return string(name.rest), nil
}
