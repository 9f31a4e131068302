package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
)

// wire speaks HTTP on one connection to the daemon's socket, as curl does it: with
// a socket that blocks, and without a scheduler between. What is timed is from the
// first byte of the request that is sent to the last one of the answer that has
// come: the daemon, and not how a client makes the one and takes apart the other.
// Package client's own share is a row beside it.
type wire struct {
	fd  int
	buf []byte
}

// wireTimeout is how long the daemon may be silent.
const wireTimeout = 30 * time.Second

func dialWire(socket string) (*wire, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	w := &wire{fd: fd, buf: make([]byte, 1<<20)}
	patience := unix.NsecToTimeval(int64(wireTimeout))
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &patience),
		unix.Connect(fd, &unix.SockaddrUnix{Name: socket}))
	if err != nil {
		w.close()
		return nil, fmt.Errorf("connect to %s: %w", socket, err)
	}
	return w, nil
}

func (w *wire) close() { _ = unix.Close(w.fd) }

// do sends one request and gives the body of the answer, and how long it took.
func (w *wire) do(method, path string, body []byte) (answer []byte, took time.Duration, err error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: toold\r\n", method, path)
	if body != nil {
		fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n")
	b.Write(body)
	start := time.Now()
	text, err := w.exchange(b.Bytes())
	took = time.Since(start)
	if err != nil {
		return nil, took, fmt.Errorf("%s %s: %w", method, path, err)
	}
	res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(text)), nil)
	if err != nil {
		return nil, took, err
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, path, res.Status, answer)
	}
	return answer, took, err
}

// exchange sends a request and reads the whole of its answer, which is valid until
// the next one.
func (w *wire) exchange(request []byte) ([]byte, error) {
	for sent := 0; sent < len(request); {
		n, err := unix.Write(w.fd, request[sent:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, fmt.Errorf("write: %w", err)
		default:
			sent += n
		}
	}
	got, want := 0, -1
	for want < 0 || got < want {
		if got == len(w.buf) {
			return nil, fmt.Errorf("an answer of more than %d bytes", len(w.buf))
		}
		n, err := unix.Read(w.fd, w.buf[got:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, fmt.Errorf("read: %w", err)
		case n == 0:
			return nil, io.ErrUnexpectedEOF
		}
		got += n
		if want < 0 {
			if want, err = length(w.buf[:got]); err != nil {
				return nil, err
			}
		}
	}
	return w.buf[:got], nil
}

// length is how long an answer is with its header, -1 while that has not come whole.
func length(text []byte) (int, error) {
	header, _, whole := bytes.Cut(text, []byte("\r\n\r\n"))
	if !whole {
		return -1, nil
	}
	const name = "\r\nContent-Length: "
	_, rest, found := bytes.Cut(header, []byte(name))
	if !found {
		return 0, fmt.Errorf("an answer without its length: %s", header)
	}
	value, _, _ := bytes.Cut(rest, []byte("\r\n"))
	n, err := strconv.Atoi(string(value))
	return len(header) + len("\r\n\r\n") + n, err
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
