package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// maxLine is how many bytes a message may have.
const maxLine = 16 << 20

// lines reads what a client sends line by line, and gives those that are messages. One that is
// none is answered as JSON-RPC says, and is no reason to end: it may be a line that a script of
// the client printed. Of a batch each message is a line of its own, whatever version of the
// protocol knows of batches.
type lines struct {
	io.Closer
	in   *bufio.Reader
	out  io.Writer // gets the answers, each in one Write
	left []byte    // of the messages that were read, what Read has not given
}

// newLines makes one.
func newLines(in io.ReadCloser, out io.Writer) *lines {
	return &lines{Closer: in, in: bufio.NewReaderSize(in, 64<<10), out: out}
}

// Read implements io.Reader.
func (l *lines) Read(p []byte) (int, error) {
	for len(l.left) == 0 {
		line, err := l.line()
		if len(line) > 0 {
			l.take(line)
		}
		if err != nil && len(l.left) == 0 {
			return 0, err
		}
	}
	n := copy(p, l.left)
	l.left = l.left[n:]
	return n, nil
}

// line gives the next line without white space around it, "" for one that is too long, which was
// answered. The last one may have no end.
func (l *lines) line() (line []byte, err error) {
	tooLong := false
	for {
		part, err := l.in.ReadSlice('\n')
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

// take adds the messages of a line to what Read gives.
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
		if _, err := jsonrpc.DecodeMessage(m); err != nil {
			l.refuse(jsonrpc.CodeInvalidRequest, "a line is no message: "+err.Error())
			continue
		}
		l.left = append(append(l.left, m...), '\n')
	}
}

// refuse answers what has no id that could be told. Where the client does not read, the next
// answer finds that out.
func (l *lines) refuse(code int64, why string) {
	b, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": code, "message": why}}) // never fails
	_, _ = l.out.Write(append(b, '\n'))
}

// oneByOne is a writer for several hands.
type oneByOne struct {
	io.WriteCloser
	mu sync.Mutex
}

// Write implements io.Writer.
func (o *oneByOne) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.WriteCloser.Write(p)
}
