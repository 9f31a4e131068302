package server

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

func TestFileTrees(t *testing.T) {
	const most = 100 << 10
	d := start(t, func(c *Config) { c.MaxFile = most })
	c, ctx := d.client(client.Options{}), t.Context()
	s := d.session(t, client.Options{}, client.SessionCreate{})
	tree := func(dir string) client.Tree { return client.Tree{Client: c, Session: s.ID, Dir: dir} }
	data := bytes.Repeat([]byte{0, 255, '\n'}, most/3)
	call, err := tree("a b/ü").Put(ctx, bytes.NewReader(data))
	if err != nil || call.Tool != "file_put_tree" {
		t.Fatalf("Put = %+v, %v", call, err)
	}
	r, id, err := tree("a b/ü").Get(ctx)
	if err != nil || id != "call_9" {
		t.Fatalf("Get: call %q, %v", id, err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the tree came back as %d bytes, %v", len(got), err)
	}
	if _, _, err := tree("none").Get(ctx); asError(t, err).Code != client.CodeInvalidPath {
		t.Errorf("a missing directory: %v, want invalid_path", err)
	}

	// What breaks off in the middle is not taken for whole.
	if _, err := tree("broken").Put(ctx, strings.NewReader("half")); err != nil {
		t.Fatal(err)
	}
	r, _, err = tree("broken").Get(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); !errors.Is(err, io.ErrUnexpectedEOF) || string(got) != "half" {
		t.Errorf("a tar that breaks off: %q, %v", got, err)
	}

	// A call that ends before its body does is answered at once, though the client would
	// send much more, or does not go on.
	if call, err := tree("early").Put(ctx, io.LimitReader(zeros{}, 20<<20)); err != nil || call.ID != "call_2" {
		t.Errorf("a body that was not read: %+v, %v", call, err)
	}
	never, stop := io.Pipe()
	defer stop.Close()
	if call, err := tree("early").Put(ctx, io.MultiReader(strings.NewReader("x"), never)); err != nil || call.ID != "call_2" {
		t.Errorf("a body that does not come: %+v, %v", call, err)
	}

	// What is still to come of it is no request of its own.
	if answer := d.raw(t, "PUT /v1/sessions/"+s.ID+"/files?archive=tar&path=early HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"); strings.Count(answer, "HTTP/1.1") != 1 || !strings.Contains(answer, "Connection: close") {
		t.Errorf("the answer to a body that does not end: %q", answer)
	}

	for query, want := range map[string]int{
		"path=x&archive=zip": 400, "path=x&archive=tar&mode=0644": 400, "archive=tar": 400,
	} {
		if resp, body := d.do(t, "PUT", "/v1/sessions/"+s.ID+"/files?"+query, "x"); resp.StatusCode != want {
			t.Errorf("%s: %d %s, want %d", query, resp.StatusCode, body, want)
		}
	}
	if resp, _ := d.do(t, "HEAD", "/v1/sessions/"+s.ID+"/files?path=broken&archive=tar", ""); resp.StatusCode != 405 {
		t.Errorf("HEAD: %d, want 405", resp.StatusCode)
	}
	if resp, body := d.do(t, "PUT", "/v1/sessions/"+s.ID+"/files?archive=tar&path=big", strings.Repeat("x", most+1)); resp.StatusCode != 413 {
		t.Errorf("an archive above the limit: %d %s, want 413", resp.StatusCode, body)
	}
}
