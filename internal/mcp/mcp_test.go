package mcp

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toold/toold/client"
)

// TestTail: the end of an output is kept, and what is left out is counted.
func TestTail(t *testing.T) {
	w := tail{most: 10}
	if w.text() != "" || w.lastLine() != "" {
		t.Errorf("nothing is %q, %q", w.text(), w.lastLine())
	}
	offset := int64(100)
	for _, s := range []string{"one\n", "two\n", "ä€ three\n", "\n"} {
		w.add(client.NewOutput("", offset, []byte(s)))
		offset += int64(len(s))
	}
	if got, want := w.text(), "(13 bytes are left out before this)\n three\n\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if w.lastLine() != " three" || w.next != offset {
		t.Errorf("last line %q, next %d, want %d", w.lastLine(), w.next, offset)
	}
	w.add(client.Output{Offset: offset, Missing: 50})
	if w.next != offset+50 {
		t.Errorf("next %d after bytes that are missing", w.next)
	}
	w = tail{most: 100}
	w.add(client.NewOutput("", 0, []byte("\x1b[1mget\x1b[0m\n10%\r99%")))
	if got, want := w.text(), "get\n99%\n(not shown: 1 redraw of a line and 2 control sequences)\n"; got != want || w.lastLine() != "99%" {
		t.Errorf("got %q, want %q, last line %q", got, want, w.lastLine())
	}
}

// FuzzTail: whatever a sandbox prints, the text is bounded and valid.
func FuzzTail(f *testing.F) {
	f.Add([]byte("a\x80b"), []byte("\xff\xfe"), 3)
	f.Fuzz(func(t *testing.T, a, b []byte, most int) {
		w := tail{most: max(1, most%64)}
		w.add(client.NewOutput("", 0, a))
		w.add(client.NewOutput("", int64(len(a)), b))
		for _, s := range []string{w.text(), w.lastLine()} {
			if !utf8.ValidString(s) {
				t.Errorf("%q", s)
			}
		}
		if len(w.buf) > 2*w.most || w.next != int64(len(a)+len(b)) {
			t.Errorf("%d bytes kept of %d, next %d", len(w.buf), w.most, w.next)
		}
	})
}

// FuzzWaitInput: an input is taken or refused, and what is taken makes sense.
func FuzzWaitInput(f *testing.F) {
	for _, s := range []string{`{"call_id":"call_1","offset":3}`, `{}`, `null`, ``, `{"call_id":"x","seconds":1e99}`, `{"call_id":"x","y":1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, args []byte) {
		in, err := waitInputOf(args)
		if err == nil && (in.CallID == "" || in.Offset < 0 || in.Seconds < 0) {
			t.Errorf("%s: %+v", args, in)
		}
	})
}

// TestAttachments: images and sounds are content of their own, and the bytes are bounded.
func TestAttachments(t *testing.T) {
	of := func(mime, data string) client.Attachment {
		return client.Attachment{Filename: "a b", MIME: mime, URL: "data:" + mime + ";base64," + data}
	}
	got := attachments([]client.Attachment{of("image/png", "YQ=="), of("audio/wav", "YQ=="), of("application/pdf", "YQ=="), of("image/png", "?"), {URL: "http://x"}})
	if i, ok := got[0].(*sdk.ImageContent); !ok || string(i.Data) != "a" || i.MIMEType != "image/png" {
		t.Errorf("%+v", got[0])
	}
	if _, ok := got[1].(*sdk.AudioContent); !ok {
		t.Errorf("%+v", got[1])
	}
	if r, ok := got[2].(*sdk.EmbeddedResource); !ok || r.Resource.URI != "toold://worktree/a%20b" || string(r.Resource.Blob) != "a" {
		t.Errorf("%+v", got[2])
	}
	for _, c := range got[3:] {
		if _, ok := c.(*sdk.TextContent); !ok {
			t.Errorf("%+v", c)
		}
	}
	big := strings.Repeat("QUFB", maxImages/4)
	if got := attachments([]client.Attachment{of("image/png", big), of("image/png", big)}); len(got) != 2 {
		t.Errorf("%d parts", len(got))
	} else if _, ok := got[1].(*sdk.TextContent); !ok {
		t.Error("more bytes than a result may have")
	}
}

// TestCancellable: of older protocols a request is cancelled by its id, where one client
// alone uses it; in newer ones the connection says it.
func TestCancellable(t *testing.T) {
	h := NewHandler(errors.New("stopping"), slog.New(slog.DiscardHandler))
	begin := func(body, version string) (context.Context, func()) {
		r := httptest.NewRequest("POST", "/", http.NoBody)
		r.Header.Set("Mcp-Protocol-Version", version)
		q := Request{Credential: "uid 0", Body: []byte(body), HTTP: r}
		ctx, done := h.cancellable(q, messageOf(q), "ses_1")
		c, _ := ctx.Value(cancelKey{}).(context.Context)
		return c, done
	}
	call, cancel := `{"id":7,"method":"tools/call"}`, `{"method":"notifications/cancelled","params":{"requestId":7}}`
	a, doneA := begin(call, "2025-11-25")
	if begin(cancel, "2025-11-25"); a.Err() == nil {
		t.Error("it is not cancelled")
	}
	doneA()
	a, doneA = begin(call, "2025-11-25")
	b, doneB := begin(call, "2025-11-25")
	if begin(cancel, "2025-11-25"); a.Err() != nil || b.Err() != nil {
		t.Error("one of two was cancelled, perhaps the wrong one")
	}
	doneA()
	doneB()
	if c, _ := begin(call, "2026-07-28"); c != nil || len(h.running) > 0 {
		t.Errorf("%v, %d are kept", c, len(h.running))
	}
	for _, body := range []string{``, `[]`, `{"id":8}`, `{"method":"tools/call"}`} {
		if c, _ := begin(body, ""); c != nil || len(h.running) > 0 {
			t.Errorf("%s: %v, %d are kept", body, c, len(h.running))
		}
	}
}

// TestWatchCommand: what a person is told to type reaches this daemon.
func TestWatchCommand(t *testing.T) {
	for socket, want := range map[string]string{
		"":                   "toolctl approvals watch",
		client.DefaultSocket: "toolctl approvals watch",
		"/srv/a.sock":        "toolctl --socket /srv/a.sock approvals watch",
		"/srv/it's mine":     `toolctl --socket "/srv/it's mine" approvals watch`,
	} {
		if got := (&Config{Socket: socket}).watchCommand(); got != want {
			t.Errorf("%q: got %s, want %s", socket, got, want)
		}
	}
}
