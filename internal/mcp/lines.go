package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxLine is how many bytes a message may have.
const maxLine = 16 << 20

// lines is the connection to a client that writes a message a line. A line that is no message is
// answered as JSON-RPC says, and is no reason to end: it may be a line that a script of the client
// printed. Of a batch each message is one of its own, whatever version of the protocol knows of
// batches. The SDK's own ends for these; and decoding here too, before it, would be done twice.
type lines struct {
	in    io.Closer // ends a Read that waits
	from  *bufio.Reader
	left  []jsonrpc.Message // that were read, and not given yet
	out   io.WriteCloser
	close func() error

	mu sync.Mutex // guards out: a line is one Write
}

// newLines makes one, which closes in and out.
func newLines(in io.ReadCloser, out io.WriteCloser) *lines {
	l := &lines{in: in, from: bufio.NewReader(in), out: out}
	l.close = sync.OnceValue(func() error { return errors.Join(l.in.Close(), l.out.Close()) })
	return l
}

// Connect implements sdk.Transport.
func (l *lines) Connect(context.Context) (sdk.Connection, error) { return l, nil }

// SessionID implements sdk.Connection: there is one, without a name.
func (l *lines) SessionID() string { return "" }

// Close implements sdk.Connection.
func (l *lines) Close() error { return l.close() }

// Read implements sdk.Connection. One at a time reads.
func (l *lines) Read(ctx context.Context) (jsonrpc.Message, error) {
	for len(l.left) == 0 {
		line, err := l.line()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if len(line) > 0 {
			l.take(line)
		}
		if err != nil && len(l.left) == 0 {
			return nil, err
		}
	}
	m := l.left[0]
	l.left = l.left[1:]
	return m, nil
}

// Write implements sdk.Connection.
func (l *lines) Write(ctx context.Context, m jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	return l.write(b)
}

// write sends a line.
func (l *lines) write(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.out.Write(append(line, '\n'))
	return err
}

// line gives the next line without white space around it, "" for one that is too long, which was
// answered. The last one may have no end.
func (l *lines) line() (line []byte, err error) {
	tooLong := false
	for {
		part, err := l.from.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) > maxLine; !tooLong {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if tooLong {
			l.refuse(jsonrpc.CodeInvalidRequest, fmt.Sprintf("a message may have %d bytes", maxLine))
			return nil, err
		}
		return bytes.TrimSpace(line), err
	}
}

// take adds the messages of a line to those that Read gives.
func (l *lines) take(line []byte) {
	if !json.Valid(line) {
		l.refuse(jsonrpc.CodeParseError, "a line is no JSON: send one message a line")
		return
	}
	all := []json.RawMessage{line}
	if line[0] == '[' {
		if all = nil; json.Unmarshal(line, &all) != nil || len(all) == 0 {
			l.refuse(jsonrpc.CodeInvalidRequest, "a batch has no messages")
			return
		}
	}
	for _, m := range all {
		message, err := jsonrpc.DecodeMessage(m)
		if err != nil {
			l.refuse(jsonrpc.CodeInvalidRequest, "a line is no message: "+err.Error())
			continue
		}
		l.left = append(l.left, message)
	}
}

// refuse answers what has no id that could be told. Where the client does not read, the next
// answer finds that out.
func (l *lines) refuse(code int64, why string) {
	b, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": code, "message": why}}) // never fails
	_ = l.write(b)
}

// Decline answers the first request of a client with an error, which says why there is no server for
// it. It gives the error of reading or writing where there is no such request.
func Decline(ctx context.Context, in io.ReadCloser, out io.WriteCloser, why string) error {
	l := newLines(in, out)
	for {
		m, err := l.Read(ctx)
		if err != nil {
			return err
		}
		if r, ok := m.(*jsonrpc.Request); ok && r.IsCall() {
			return l.Write(ctx, &jsonrpc.Response{ID: r.ID, Error: &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: why}})
		}
	}
}
