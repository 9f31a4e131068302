package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/toold/toold/client"
)

// wire speaks HTTP on one connection to the daemon's socket, from one goroutine
// and with nothing between: what is timed is the daemon and not a client library,
// as with curl. Package client's own share is a row beside it.
type wire struct {
	c net.Conn
	r *bufio.Reader
}

func dialWire(socket string) (*wire, error) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	return &wire{c: c, r: bufio.NewReader(c)}, nil
}

func (w *wire) close() { _ = w.c.Close() }

// do sends one request and gives the body of the answer.
func (w *wire) do(method, path string, body []byte) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: toold\r\n", method, path)
	if body != nil {
		fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n")
	b.Write(body)
	if _, err := w.c.Write(b.Bytes()); err != nil {
		return nil, err
	}
	res, err := http.ReadResponse(w.r, nil)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, path, res.Status, answer)
	}
	return answer, err
}

// call runs a tool and wants it to succeed.
func (w *wire) call(session, tool string, input any) error {
	raw, err := json.Marshal(input)
	if err != nil {
		return err
	}
	body, err := json.Marshal(client.CallCreate{Tool: tool, Input: raw})
	if err != nil {
		return err
	}
	answer, err := w.do("POST", "/v1/sessions/"+session+"/calls", body)
	if err != nil {
		return err
	}
	var c struct {
		Error   *client.Error `json:"error"`
		IsError bool          `json:"is_error"`
	}
	switch err := json.Unmarshal(answer, &c); {
	case err != nil:
		return err
	case c.Error != nil:
		return c.Error
	case c.IsError:
		return fmt.Errorf("%s failed: %s", tool, answer)
	}
	return nil
}

// echo is what a request costs that asks nothing of a session.
func (w *wire) echo() error {
	_, err := w.do("GET", "/v1/version", nil)
	return err
}
