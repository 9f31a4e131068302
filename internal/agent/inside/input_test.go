package inside

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/wire"
)

// hashTool reads its input, as much as its own input says, and answers with its hash and
// how it ended.
func hashTool(name string, chunk int) fakeTool {
	return fakeTool{
		name: name,
		prepare: func(context.Context, *run.Env, json.RawMessage) (*run.Prepared, error) {
			return &run.Prepared{Targets: []run.Target{{Path: "/here"}}}, nil
		},
		run: func(_ context.Context, env *run.Env, in json.RawMessage, _ *run.Prepared) (*run.Result, error) {
			var most int64
			if err := json.Unmarshal(in, &most); err != nil {
				return nil, err
			}
			h := sha256.New()
			n, err := io.CopyBuffer(struct{ io.Writer }{h}, io.LimitReader(struct{ io.Reader }{env.Input}, most), make([]byte, chunk))
			return &run.Result{Output: fmt.Sprintf("%d %x %v", n, h.Sum(nil), err)}, nil
		},
	}
}

var allInput = json.RawMessage("1099511627776")

func hashed(b []byte, err error) string {
	return fmt.Sprintf("%d %x %v", len(b), sha256.Sum256(b), err)
}

// A call reads what the request has for it: all of it in order, whatever the pieces.
func TestInput(t *testing.T) {
	r := newRig(t, hashTool("big", 300<<10), hashTool("small", 777))
	c, _ := r.connect(r.hello())
	rnd := rand.New(rand.NewPCG(1, 2))
	id := 0
	for _, size := range []int{0, 1, 64 << 10, inputWindow - 1, inputWindow, inputWindow + 1, 3<<20 + 5} {
		whole := make([]byte, size)
		for i := range whole {
			whole[i] = byte(rnd.Uint32())
		}
		for _, tool := range []string{"big", "small"} {
			for _, body := range []io.Reader{bytes.NewReader(whole), iotest.HalfReader(bytes.NewReader(whole)), iotest.DataErrReader(bytes.NewReader(whole))} {
				id++
				q := ask(fmt.Sprint(id), tool)
				q.Input, q.Body = allInput, io.NopCloser(body)
				o, err := c.Run(t.Context(), q, nil)
				if err != nil || o.Result == nil || o.Result.Output != hashed(whole, nil) {
					t.Fatalf("%s, %d bytes: %+v, %v", tool, size, o, err)
				}
			}
		}
	}
}

// What breaks off says why, and what came before is read.
func TestInputBreaksOff(t *testing.T) {
	r := newRig(t, hashTool("h", 1000))
	c, _ := r.connect(r.hello())
	head := strings.Repeat("x", 100_000)
	q := ask("1", "h")
	q.Input, q.Body = allInput, io.NopCloser(io.MultiReader(strings.NewReader(head), iotest.ErrReader(errors.New("the client went away"))))
	o, err := c.Run(t.Context(), q, nil)
	if want := hashed([]byte(head), errors.New("the client went away")); err != nil || o.Result == nil || o.Result.Output != want {
		t.Fatalf("%+v, %v", o, err)
	}
}

// A call that ends before its input does closes it, though a Read waits.
func TestInputIsLeft(t *testing.T) {
	r := newRig(t, hashTool("h", 1000))
	c, _ := r.connect(r.hello())
	pr, pw := io.Pipe()
	written := make(chan error, 1)
	go func() {
		var err error
		for err == nil {
			_, err = pw.Write(make([]byte, 1000))
		}
		written <- err
	}()
	q := ask("1", "h")
	q.Input, q.Body = json.RawMessage("5000"), pr
	o, err := c.Run(t.Context(), q, nil)
	if err != nil || o.Result == nil || o.Result.Output != hashed(make([]byte, 5000), nil) {
		t.Fatalf("%+v, %v", o, err)
	}
	if err := <-written; !errors.Is(err, io.ErrClosedPipe) {
		t.Fatal(err)
	}
	// One that has not run leaves it as it was.
	pr, pw = io.Pipe()
	go func() { _, _ = pw.Write([]byte("all")); _ = pw.Close() }()
	q = ask("2", "h")
	q.Input, q.Body, q.Expect = allInput, pr, []string{"/elsewhere"}
	if o, err = c.Run(t.Context(), q, nil); err != nil || o.Prepared == nil {
		t.Fatalf("%+v, %v", o, err)
	}
	q.Expect = []string{"/here"}
	if o, err = c.Run(t.Context(), q, nil); err != nil || o.Result == nil || o.Result.Output != hashed([]byte("all"), nil) {
		t.Fatalf("%+v, %v", o, err)
	}
}

// Input does not outlive the connection that brings it: the call goes on and is told.
func TestInputLosesItsConnection(t *testing.T) {
	r := newRig(t, hashTool("h", 1000))
	c, _ := r.connect(r.hello())
	pr, pw := io.Pipe()
	q := ask("1", "h")
	q.Input, q.Body = allInput, pr
	done := make(chan error, 1)
	go func() { _, err := c.Run(t.Context(), q, nil); done <- err }()
	if _, err := pw.Write([]byte("begun")); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := <-done; !errors.Is(err, agent.ErrLost) {
		t.Fatal(err)
	}
	c, _ = r.connect(r.hello())
	o, err := c.Resume(t.Context(), "1", 0, nil)
	if err != nil || o.Result == nil || !strings.HasSuffix(o.Result.Output, errInputGone.Error()) {
		t.Fatalf("%+v, %v", o, err)
	}
}

// A connection that is lost while it begins a call leaves none that waits for its input.
func TestInputOfLostConnection(t *testing.T) {
	c := newCall(t.Context(), wire.Request{}, 1000)
	c.in.from = &attachment{peer: &peer{}}
	(&Server{}).attach(&peer{}, &attached{call: c, a: c.in.from})
	if _, err := (*inputReader)(c).Read(make([]byte, 1)); !errors.Is(err, errInputGone) {
		t.Fatal(err)
	}
}
