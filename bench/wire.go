package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
)

// wire speaks HTTP on one connection to the daemon's socket, as curl does it: with
// a socket that blocks, and without a scheduler between. What is timed is from the
// first byte of the request that is sent to the last one of the answer that has
// come, and with it the reading of its header, some microseconds. Package client's own
// share is a row beside it.
type wire struct {
	socket string
	conn   *os.File // nil until it is first used: a daemon closes connections that nobody uses
	in     *bufio.Reader
}

// wireTimeout is how long the daemon may be silent.
const wireTimeout = 30 * time.Second

func (w *wire) dial() error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	w.conn = os.NewFile(uintptr(fd), w.socket) // which goes on to block
	w.in = bufio.NewReaderSize(w.conn, 64<<10)
	patience := unix.NsecToTimeval(int64(wireTimeout))
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &patience),
		unix.Connect(fd, &unix.SockaddrUnix{Name: w.socket}))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", w.socket, err)
	}
	return nil
}

func (w *wire) close() { _ = w.conn.Close() } // of nil it is an error

// do sends one request and gives the body of the answer, and how long it took.
func (w *wire) do(method, path string, body []byte) (answer []byte, took time.Duration, err error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: toold\r\n", method, path)
	if body != nil {
		fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n")
	b.Write(body)
	if w.conn == nil {
		if err := w.dial(); err != nil {
			return nil, 0, err
		}
	}
	start := time.Now()
	if _, err := w.conn.Write(b.Bytes()); err != nil {
		return nil, 0, fmt.Errorf("%s %s: %w", method, path, err)
	}
	res, err := http.ReadResponse(w.in, nil)
	if err != nil {
		return nil, 0, fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(res.Body)
	took = time.Since(start)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, path, res.Status, answer)
	}
	return answer, took, err
}

// call runs a tool and wants it to succeed.
func (w *wire) call(session, tool string, input any) (time.Duration, error) {
	raw, err := json.Marshal(input)
	if err != nil {
		return 0, err
	}
	body, err := json.Marshal(client.CallCreate{Tool: tool, Input: raw})
	if err != nil {
		return 0, err
	}
	answer, took, err := w.do("POST", "/v1/sessions/"+session+"/calls", body)
	if err != nil {
		return took, err
	}
	var c struct {
		Error   *client.Error `json:"error"`
		IsError bool          `json:"is_error"`
	}
	switch err := json.Unmarshal(answer, &c); {
	case err != nil:
		return took, err
	case c.Error != nil:
		return took, c.Error
	case c.IsError:
		return took, fmt.Errorf("%s failed: %s", tool, answer)
	}
	return took, nil
}

// echo is what a request costs that asks nothing of a session.
func (w *wire) echo() (time.Duration, error) {
	_, took, err := w.do("GET", "/v1/version", nil)
	return took, err
}
