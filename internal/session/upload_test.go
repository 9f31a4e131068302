package session

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// watchedBody is a body that is looked at while it arrives.
type watchedBody struct {
	io.Reader
	look func()
}

func (r watchedBody) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.look()
	return n, err
}

// TestUploadIsSeenWhole: of an upload there is nothing in the directory that the sandbox has before all
// bytes are there and the call may run, and nothing afterwards, whatever becomes of it.
func TestUploadIsSeenWhole(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.set.Policy = rules(t, "[permission.edit]\n\"*\" = \"allow\"\nasked = \"ask\"\n")
	h.open()
	s := h.create(alice, client.SessionCreate{})
	bare := func(when string) {
		t.Helper()
		if n := len(mustReadDir(t, h.m.cfg.OutputDir+"/"+s.ID)); n != 0 {
			t.Errorf("%s: the sandbox has %d files", when, n)
		}
	}
	body := func(text string, last error) io.Reader {
		ends := io.MultiReader(strings.NewReader(text), iotest.ErrReader(last))
		return watchedBody{ends, func() { bare("on its way") }}
	}
	put := func(path string, body io.Reader) (*client.Call, error) {
		return h.m.Files.Upload(t.Context(), alice, s.ID, path, 0, body)
	}
	if c, err := put("f", body("hello", io.EOF)); err != nil || c.Output != "hello" {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := put("f", body("hello", io.ErrUnexpectedEOF)); codeOfErr(err) != client.CodeAborted {
		t.Errorf("one that breaks off: %v", err)
	}
	for _, answer := range []client.ApprovalAnswer{once, reject} {
		done := make(chan *client.Call)
		go func() {
			c, err := put("asked", body("secret", io.EOF))
			if err != nil {
				t.Error(err)
			}
			done <- c
		}()
		testrig.Eventually(t, "somebody is asked", func() bool { return len(h.pending()) == 1 })
		bare("while somebody is asked")
		h.answer(&h.pending()[0], answer)
		if c := <-done; (c.Output == "secret") != (answer == once) {
			t.Errorf("%s: %+v", answer.Answer, c)
		}
	}
	bare("afterwards")
	if n := len(mustReadDir(t, h.m.uploadDir())); n != 0 {
		t.Errorf("%d uploads are left", n)
	}
}
