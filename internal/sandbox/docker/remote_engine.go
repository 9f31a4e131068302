package docker

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/toold/toold/internal/sandbox/far"
)

// dialTime bounds making a connection to an Engine elsewhere.
const dialTime = 15 * time.Second

// maxHeader bounds the header of an answer in bytes where no http.Transport does.
const maxHeader = 64 << 10

// newRemoteEngine makes a client for an Engine at tcp:// with TLS, or at ssh://.
// It does not connect.
func newRemoteEngine(host, certDir string) (*engine, error) {
	u, err := url.Parse(host)
	if err != nil || u.Host == "" || u.Path != "" && u.Path != "/" {
		return nil, fmt.Errorf("the Docker Engine %q: an address is tcp://HOST:PORT or ssh://[USER@]HOST[:PORT]", host)
	}
	// It is shown in errors and notes.
	if _, ok := u.User.Password(); ok {
		return nil, fmt.Errorf("the Docker Engine %q: its address takes no password", u.Redacted())
	}
	var dial far.DialFunc
	switch u.Scheme {
	case "tcp":
		dial, err = dialTLS(u, certDir)
	case "ssh":
		dial, err = far.SSH(u, "docker", "system", "dial-stdio")
	default:
		err = errors.New("an address is unix://, tcp:// or ssh://")
	}
	if err != nil {
		return nil, fmt.Errorf("the Docker Engine %q: %w", host, err)
	}
	return dialled(host, "tcp://"+u.Host, dial)
}

// dialTLS connects with certificates of both sides. An Engine that takes anybody,
// or that cannot prove who it is, is never spoken to.
func dialTLS(u *url.URL, certDir string) (far.DialFunc, error) {
	if u.Port() == "" {
		return nil, errors.New("its address has no port; the usual one is 2376")
	}
	if certDir == "" {
		return nil, errors.New("it is spoken to with TLS only: set DOCKER_CERT_PATH to a directory with ca.pem, cert.pem and key.pem")
	}
	ca, err := os.ReadFile(filepath.Join(certDir, "ca.pem"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s has no certificate", filepath.Join(certDir, "ca.pem"))
	}
	cert, err := tls.LoadX509KeyPair(filepath.Join(certDir, "cert.pem"), filepath.Join(certDir, "key.pem"))
	if err != nil {
		return nil, err
	}
	d := &tls.Dialer{
		NetDialer: &net.Dialer{Timeout: dialTime},
		Config:    &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}, ServerName: u.Hostname(), MinVersion: tls.VersionTLS12},
	}
	return func(ctx context.Context) (net.Conn, error) { return d.DialContext(ctx, "tcp", u.Host) }, nil
}

// execAttach starts a program in a container and gives the connection that is its
// input and output.
func (e *engine) execAttach(ctx context.Context, id string, argv []string) (net.Conn, *bufio.Reader, error) {
	created, err := ask(ctx, e, askTime, "enter container "+id, func(ctx context.Context) (container.ExecCreateResponse, error) {
		return e.c.ContainerExecCreate(ctx, id, container.ExecOptions{
			User: "0:0", AttachStdin: true, AttachStdout: true, Cmd: argv,
		})
	})
	if err != nil {
		return nil, nil, err
	}
	if !containerID.MatchString(created.ID) {
		return nil, nil, fmt.Errorf("the Docker Engine %s: %q is no id", e.host, created.ID)
	}
	conn, err := e.http.DialContext(ctx, "", "")
	if err != nil {
		return nil, nil, e.explain(ctx, "enter container "+id, err)
	}
	r, err := e.upgrade(ctx, conn, "/v"+e.c.ClientVersion()+"/exec/"+created.ID+"/start")
	if err != nil {
		_ = conn.Close()
		return nil, nil, e.explain(ctx, "enter container "+id, err)
	}
	return conn, r, nil
}

// upgrade makes a request after whose answer the connection is no longer HTTP.
func (e *engine) upgrade(ctx context.Context, conn net.Conn, path string) (*bufio.Reader, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(askTime)); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://docker"+path, strings.NewReader(`{"Detach":false,"Tty":false}`))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "tcp")
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	bounded := &io.LimitedReader{R: conn, N: maxHeader}
	r := bufio.NewReader(bounded)
	resp, err := http.ReadResponse(r, req) //nolint:bodyclose // what follows is no body but the connection
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols && resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, maxQuoted))
		return nil, fmt.Errorf("it answered %s %s", resp.Status, said)
	}
	if !stop() {
		return nil, context.Cause(ctx)
	}
	bounded.N = math.MaxInt64
	return r, conn.SetDeadline(time.Time{})
}
