package inside

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/wire"
)

// Programs that tools other than bash run: output to writers, found in PATH.
func TestExec(t *testing.T) {
	type outcome struct {
		exit *run.Exit
		err  error
		out  string
		errs string
	}
	var got outcome
	var cmd run.Command
	tool := fakeTool{name: "x", run: func(ctx context.Context, env *run.Env, _ json.RawMessage, _ *run.Prepared) (*run.Result, error) {
		var out, errOut bytes.Buffer
		c := cmd
		if c.Stdout == nil {
			c.Stdout, c.Stderr = &out, &errOut
		}
		got.exit, got.err = env.Exec(ctx, c)
		got.out, got.errs = out.String(), errOut.String()
		return &run.Result{}, nil
	}}
	r := newRig(t, tool)
	c, _ := r.connect(r.hello())
	n := 0
	exec := func(command run.Command) outcome {
		n++
		cmd, got = command, outcome{}
		o, err := c.Run(t.Context(), ask(fmt.Sprint(n), "x"), nil)
		if err != nil || o.Err != nil {
			t.Fatal(err, o)
		}
		return got
	}
	if g := exec(run.Command{Argv: []string{"sh", "-c", "echo a; echo b >&2; pwd; echo $X"}, Dir: "/", Env: []string{"X=y"}}); g.err != nil || g.out != "a\n/\ny\n" || g.errs != "b\n" {
		t.Errorf("%+v", g)
	}
	if g := exec(run.Command{Argv: []string{"no-such-program"}}); !errors.Is(g.err, fs.ErrNotExist) || !strings.Contains(g.err.Error(), "no-such-program") {
		t.Errorf("%+v", g)
	}
	if g := exec(run.Command{Argv: []string{"/etc/passwd"}}); !errors.Is(g.err, fs.ErrPermission) {
		t.Errorf("%+v", g)
	}
	if g := exec(run.Command{Argv: []string{"a\x00b"}}); g.err == nil {
		t.Errorf("%+v", g)
	}
	if g := exec(run.Command{}); g.err == nil {
		t.Errorf("%+v", g)
	}
	full := errors.New("full")
	if g := exec(run.Command{Argv: []string{"yes"}, Stdout: writerFunc(func([]byte) (int, error) { return 0, full })}); !errors.Is(g.err, full) || g.exit.Signal != "SIGPIPE" {
		t.Errorf("%+v", g)
	}
	if g := exec(run.Command{Argv: []string{"sleep", "100"}, Timeout: 50 * time.Millisecond}); g.err != nil || g.exit.Reason != run.ReasonTimeout {
		t.Errorf("%+v", g)
	}
	// Bills of several programs of one call add up.
	cl := newCall(t.Context(), wire.Request{}, 1)
	cl.exited(&run.Exit{Code: 1, DurationMillis: 5, CPUMillis: 1, IOBytes: 2, MaxMemoryBytes: 9, BackgroundKilled: 1, Reason: run.ReasonExit})
	cl.exited(&run.Exit{Code: 2, DurationMillis: 5, CPUMillis: 1, IOBytes: 2, MaxMemoryBytes: 3, Reason: run.ReasonExit})
	if want := (run.Exit{Code: 2, DurationMillis: 10, CPUMillis: 2, IOBytes: 4, MaxMemoryBytes: 9, BackgroundKilled: 1, Reason: run.ReasonExit}); !reflect.DeepEqual(*cl.exit, want) {
		t.Errorf("bill %+v, want %+v", *cl.exit, want)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A daemon that never forgets does not fill the agent.
func TestHeldResultsAreBounded(t *testing.T) {
	big := strings.Repeat("x", 30<<20)
	lost := make(chan struct{})
	r := newRig(t, fakeTool{name: "big", run: func(context.Context, *run.Env, json.RawMessage, *run.Prepared) (*run.Result, error) {
		<-lost
		return &run.Result{Output: big}, nil
	}})
	const fit = maxHeld / (30 << 20)
	for i := range 2 * fit {
		id := fmt.Sprint("b", i)
		c, _ := r.connect(r.hello())
		over := make(chan struct{})
		go func() {
			defer close(over)
			_, _ = c.Run(t.Context(), ask(id, "big"), nil)
		}()
		testrig.Eventually(t, "the call", func() bool { return r.server.call(id) != nil })
		c.Close()
		<-over
		testrig.Eventually(t, "the connection is lost", func() bool {
			r.server.mu.Lock()
			defer r.server.mu.Unlock()
			return r.server.peer == nil
		})
		lost <- struct{}{}
		held := r.server.call(id)
		testrig.Eventually(t, "its end", func() bool {
			held.mu.Lock()
			defer held.mu.Unlock()
			return held.finished && (held.final.Err != nil) == (i >= fit)
		})
	}
	c, _ := r.connect(r.hello())
	for i := range 2 * fit {
		o, err := c.Resume(t.Context(), fmt.Sprint("b", i), 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		if (o.Err != nil) != (i >= fit) {
			t.Errorf("result %d: %v", i, o.Err)
		}
	}
}

// What calls were asked with is counted while they are worked on, and not kept
// after that.
func TestRequestsAreBounded(t *testing.T) {
	r := newRig(t, fakeTool{name: "x", run: func(context.Context, *run.Env, json.RawMessage, *run.Prepared) (*run.Result, error) {
		return &run.Result{}, nil
	}, prepare: func(context.Context, *run.Env, json.RawMessage) (*run.Prepared, error) {
		return nil, nil
	}})
	c, _ := r.connect(r.hello())
	asked := func(add int64) int64 {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		r.server.asked += add
		return r.server.asked
	}
	asked(maxAsked)
	if o, err := c.Run(t.Context(), ask("a", "x"), nil); err != nil || o.Err == nil || o.Err.Code != run.CodeSandboxFailed {
		t.Errorf("run over the limit: %v %+v", err, o)
	}
	var refused *run.Error
	if _, err := c.Prepare(t.Context(), ask("a", "x")); !errors.As(err, &refused) || refused.Code != run.CodeSandboxFailed {
		t.Errorf("prepare over the limit: %v", err)
	}
	asked(-maxAsked)
	if _, err := c.Prepare(t.Context(), ask("a", "x")); err != nil {
		t.Error(err)
	}
	if o, err := c.Run(t.Context(), ask("a", "x"), nil); err != nil || o.Err != nil {
		t.Errorf("%v %+v", err, o)
	}
	if n := asked(0); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
	held := r.server.call("a")
	held.mu.Lock()
	defer held.mu.Unlock()
	if held.req.Input != nil || held.req.Prepared != nil {
		t.Errorf("kept: %+v", held.req)
	}
}

func TestTooManyCalls(t *testing.T) {
	r := newRig(t, fakeTool{name: "x", run: func(context.Context, *run.Env, json.RawMessage, *run.Prepared) (*run.Result, error) {
		return &run.Result{}, nil
	}})
	c, _ := r.connect(r.hello())
	for i := range maxCalls {
		if o, err := c.Run(t.Context(), ask(fmt.Sprint(i), "x"), nil); err != nil || o.Err != nil {
			t.Fatal(i, err, o)
		}
	}
	o, err := c.Run(t.Context(), ask("one more", "x"), nil)
	if err != nil || o.Err == nil || o.Err.Code != run.CodeSandboxFailed {
		t.Errorf("%v %+v", err, o)
	}
	if err := c.Forget("0"); err != nil {
		t.Fatal(err)
	}
	if o, err = c.Run(t.Context(), ask("one more", "x"), nil); err != nil || o.Err != nil {
		t.Errorf("%v %+v", err, o)
	}
}

func TestTrimThreads(t *testing.T) {
	var wg, all sync.WaitGroup
	const many = 30
	all.Add(many)
	for range many { // who is locked has a thread of its own
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			all.Done()
			all.Wait()
		})
	}
	wg.Wait()
	before := len(threads(t))
	releaseMemory()
	testrig.Eventually(t, "fewer threads", func() bool { return len(threads(t)) < before })
}

func threads(t *testing.T) []os.DirEntry {
	t.Helper()
	e, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Output may be acknowledged when its last byte has arrived, which is before who sends
// it knows that it has. Such an acknowledgement is not lost: no other may follow.
func TestAckOfOutputOnItsWay(t *testing.T) {
	here, there := testrig.Socketpair(t)
	defer here.Close()
	defer there.Close()
	if err := here.SetWriteBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	c := newCall(t.Context(), wire.Request{}, leastUnacked)
	if _, err := (&stream{c: c}).Write(make([]byte, wire.MaxChunk)); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	a := &attachment{peer: &peer{c: here, out: wire.NewWriter(here, 0), wg: &wg, at: map[uint64]*attached{}}, limit: 1 << 20}
	c.attach(a)
	base := func() int64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.ring.base
	}
	for range 1000 { // nobody reads, so that it is on its way for as long as we like
		c.ack(wire.MaxChunk)
		if base() == wire.MaxChunk {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if got := base(); got != wire.MaxChunk {
		t.Errorf("the agent keeps what comes after %d; %d bytes were acknowledged", got, wire.MaxChunk)
	}
	here.Close()
	wg.Wait()
}

// What was never sent cannot be acknowledged away.
func TestAckOfUnsentOutput(t *testing.T) {
	c := newCall(t.Context(), wire.Request{}, leastUnacked)
	if _, err := (&stream{c: c}).Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	c.ack(1 << 40)
	c.most = 2
	c.ack(1 << 40)
	if p, _ := c.ring.next(2, 100); c.ring.base != 2 || string(p) != "llo" {
		t.Errorf("base %d, left %q", c.ring.base, p)
	}
}
