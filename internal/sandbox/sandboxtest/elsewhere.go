package sandboxtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/toold/toold/internal/testrig"
)

// Elsewhere makes a socket of this host reachable as one of another host is: by TCP,
// with TLS of both sides.
type Elsewhere struct {
	// Host is its address, tcp://…; Certs is a directory with ca.pem, cert.pem and
	// key.pem, as DOCKER_CERT_PATH names it.
	Host, Certs string

	socket string

	mu    sync.Mutex // guards the fields below
	away  bool
	conns map[net.Conn]struct{}
}

// NewElsewhere serves until the test ends.
func NewElsewhere(t testing.TB, socket string) *Elsewhere {
	t.Helper()
	certs, config := Certificates(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	testrig.Must(t, err)
	e := &Elsewhere{Host: "tcp://" + l.Addr().String(), Certs: certs, socket: socket, conns: map[net.Conn]struct{}{}}
	stop := testrig.Serve(l, e.carry)
	t.Cleanup(func() {
		e.Away(true)
		stop()
	})
	return e
}

// Away cuts all connections and takes no more, as a network does that is gone; or
// lets it be as before.
func (e *Elsewhere) Away(away bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.away = away
	for c := range e.conns {
		if away {
			_ = c.Close()
		}
	}
}

// carry moves bytes between a connection and one to the socket until either ends.
func (e *Elsewhere) carry(c net.Conn) {
	near, err := net.Dial("unix", e.socket)
	if err != nil {
		return
	}
	defer near.Close()
	if !e.hold(c) {
		return
	}
	defer e.drop(c)
	var both sync.WaitGroup
	for _, ends := range [][2]net.Conn{{c, near}, {near, c}} {
		both.Go(func() {
			_, _ = io.Copy(ends[0], ends[1])
			_, _ = c.Close(), near.Close()
		})
	}
	both.Wait()
}

func (e *Elsewhere) hold(c net.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.away {
		e.conns[c] = struct{}{}
	}
	return !e.away
}

func (e *Elsewhere) drop(c net.Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.conns, c)
}

// SSH makes a program that takes the place of ssh and of what that starts: it carries
// one connection to a socket of this host, by the "connect" of the agent at this path.
// It is the file ssh in dir, which also gets a line in the file args for each start.
func SSH(t testing.TB, agent, socket string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\necho \"$*\" >> '%s/args'\nexec '%s' connect '%s'\n", dir, agent, socket)
	testrig.Must(t, testrig.WriteProgram(filepath.Join(dir, "ssh"), []byte(script)))
	return dir
}

// Certificates makes a key and its certificate, which is the authority, a server at 127.0.0.1
// and its client in one. They are in dir too: ca.pem, cert.pem and key.pem.
func Certificates(t testing.TB) (dir string, server *tls.Config) {
	t.Helper()
	dir = t.TempDir()
	cert, key, err := certificate()
	for name, data := range map[string][]byte{"ca.pem": cert, "cert.pem": cert, "key.pem": key} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	testrig.Must(t, err)
	pair, err := tls.X509KeyPair(cert, key)
	testrig.Must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(pair.Leaf)
	return dir, &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
}

// certificate signs itself for an hour.
func certificate() (cert, key []byte, err error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	is := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, is, is, k.Public(), k)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), err
}
