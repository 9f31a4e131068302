package mcp

import (
	"bytes"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
)

// maxSoFar is how many bytes of output an answer has that does not wait for its call.
const maxSoFar = 16 << 10

// tail keeps the end of an output.
type tail struct {
	most int
	buf  []byte
	from int64 // offset of the first byte that was seen
	next int64 // offset of the byte after the last one
	seen bool
}

func (t *tail) add(o client.Output) {
	b := o.Bytes()
	if !t.seen {
		t.from, t.seen = o.Offset, true
	}
	t.next = o.Offset + int64(len(b)) + o.Missing
	t.buf = append(t.buf, b...)
	if len(t.buf) > 2*t.most {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-t.most:]...)
	}
}

// end is what is kept, from the beginning of a character on.
func (t *tail) end() []byte {
	b := t.buf[max(0, len(t.buf)-t.most):]
	if int64(len(b)) == t.next-t.from {
		return b
	}
	return plain.FromRune(b)
}

// text is the end of the output, with the number of bytes before it that are left out.
func (t *tail) text() string {
	b := t.end()
	var screen plain.Screen
	text := strings.ToValidUTF8(string(screen.All(b)), "\uFFFD")
	if left := plain.NotShown(screen.Redraws, screen.Controls); left != "" {
		text = strings.TrimRight(text, "\n") + "\n(not shown: " + left + ")\n"
	}
	if left := t.next - t.from - int64(len(b)); left > 0 {
		return fmt.Sprintf("(%s left out before this)\n%s", plain.Count(left, "byte is", "bytes are"), text)
	}
	return text
}

// lastLine is the last line that has something in it.
func (t *tail) lastLine() string {
	var screen plain.Screen
	b := bytes.TrimRight(screen.All(t.end()), "\r\n \t")
	if i := bytes.LastIndexAny(b, "\r\n"); i >= 0 {
		b = b[i+1:]
	}
	return plain.Cut(strings.ToValidUTF8(string(b), "\uFFFD"), maxNote)
}

// waitsFor says what keeps the call from running or ending.
func (w *watch) waitsFor() string {
	switch {
	case w.asked != nil:
		return approvalText(w.asked, w.s.cfg.watchCommand())
	case w.call.Status == client.CallRunning:
		return "running"
	}
	return "waiting to run"
}

// maxWants is how many of the things that a call asks for are named.
const maxWants = 5

// approvalText says what a call waits for and how a person answers.
func approvalText(a *client.Approval, watch string) string {
	var wants []string
	for i, r := range a.Requests {
		if i == maxWants {
			wants = append(wants, plain.Count(len(a.Requests)-i, "more thing", "more things"))
			break
		}
		wants = append(wants, fmt.Sprintf("%s %s", plain.Line(r.Permission), plain.Cut(plain.Line(r.Pattern), maxNote)))
	}
	return fmt.Sprintf("waiting for a person to approve %s (%s); to answer: %s", strings.Join(wants, ", "), a.ID, watch)
}

// soFar is the result of a call that goes on.
func (w *watch) soFar() *sdk.CallToolResult {
	status := w.call.Status
	if status == "" {
		status = client.CallPending
	}
	out := outcome{CallID: w.call.ID, Status: status, Title: w.call.Title, NextOffset: &w.tail.next}
	var b strings.Builder
	if t := w.tail.text(); t != "" {
		fmt.Fprintf(&b, "%s\n\n", strings.TrimRight(t, "\n"))
	}
	fmt.Fprintf(&b, "The call has not ended: it is %s. To go on, call the tool %s with {\"call_id\": %q, \"offset\": %d}.",
		w.waitsFor(), WaitTool, w.call.ID, w.tail.next)
	return out.result(false, b.String())
}
