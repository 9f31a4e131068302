package hello_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/toold/toold/internal/egress/hello"
)

// recorded is what a client sends first.
func recorded(tb testing.TB, cfg *tls.Config) []byte {
	tb.Helper()
	near, far := net.Pipe()
	go func() { _ = tls.Client(near, cfg).Handshake(); _ = near.Close() }()
	defer far.Close()
	buf := make([]byte, 64<<10)
	n, err := far.Read(buf)
	if err != nil {
		tb.Fatal(err)
	}
	return buf[:n]
}

// split divides the one record into many of so many bytes.
func split(record []byte, size int) []byte {
	var out []byte
	for body := record[5:]; len(body) > 0; {
		n := min(size, len(body))
		out = append(out, record[0], record[1], record[2], byte(n>>8), byte(n))
		out = append(out, body[:n]...)
		body = body[n:]
	}
	return out
}

func TestRead(t *testing.T) {
	named := recorded(t, &tls.Config{ServerName: "api.example.com", NextProtos: []string{"h2", "http/1.1"}})
	old := recorded(t, &tls.Config{ServerName: "old.example.com", MaxVersion: tls.VersionTLS12})
	unnamed := recorded(t, &tls.Config{ServerName: "192.0.2.1", InsecureSkipVerify: true})
	for _, tt := range []struct {
		what, name string
		in         []byte
		err        bool
	}{
		{what: "TLS 1.3", in: named, name: "api.example.com"},
		{what: "TLS 1.2", in: old, name: "old.example.com"},
		{what: "no name", in: unnamed},
		{what: "many records", in: split(named, 3), name: "api.example.com"},
		{what: "one byte a record", in: split(old, 1), name: "old.example.com"},
		{what: "cut", in: named[:len(named)-1], err: true},
		{what: "HTTP", in: []byte("GET / HTTP/1.1\r\n\r\n"), err: true},
		{what: "ssh", in: []byte("SSH-2.0-x\r\n"), err: true},
		{what: "empty", err: true},
		{what: "empty record", in: []byte{22, 3, 1, 0, 0}, err: true},
		{what: "alert", in: []byte{21, 3, 1, 0, 2, 1, 0}, err: true},
		{what: "something behind it in the record", in: append(split(named, 1<<14)[:3:3], append([]byte{byte((len(named) - 4) >> 8), byte(len(named) - 4)}, append(bytes.Clone(named[5:]), 0)...)...), err: true},
	} {
		name, taken, err := hello.Read(bytes.NewReader(tt.in))
		if name != tt.name || (err != nil) != tt.err || !bytes.HasPrefix(tt.in, taken) || err == nil && len(taken) != len(tt.in) {
			t.Errorf("%s: name %q, %d of %d bytes, error %v", tt.what, name, len(taken), len(tt.in), err)
		}
	}
}

// FuzzRead: whatever is read, Go's own server reads the same name in it, if it reads one.
func FuzzRead(f *testing.F) {
	f.Add(recorded(f, &tls.Config{ServerName: "api.example.com"}))
	f.Add(split(recorded(f, &tls.Config{ServerName: "a.b", MaxVersion: tls.VersionTLS12}), 40))
	f.Add([]byte{22, 3, 1, 0, 4, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		name, taken, err := hello.Read(bytes.NewReader(in))
		if !bytes.HasPrefix(in, taken) {
			t.Fatalf("took %d bytes that are not the first", len(taken))
		}
		if err != nil {
			return
		}
		seen, got := servers(in)
		if seen && got != name {
			t.Errorf("name %q, and the server reads %q", name, got)
		}
	})
}

var errEnough = errors.New("enough")

// servers is the name that crypto/tls reads.
func servers(in []byte) (seen bool, name string) {
	cfg := &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		seen, name = true, h.ServerName
		return nil, errEnough
	}}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = tls.Server(&onlyRead{r: bytes.NewReader(in)}, cfg).HandshakeContext(ctx)
	return seen, name
}

type onlyRead struct {
	net.Conn
	r io.Reader
}

func (c *onlyRead) Read(p []byte) (int, error)  { return c.r.Read(p) }
func (c *onlyRead) Write(p []byte) (int, error) { return len(p), nil }
func (c *onlyRead) Close() error                { return nil }
