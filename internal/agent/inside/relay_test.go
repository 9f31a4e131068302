package inside

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
)

// slowRead is work on files that hangs in a system call until nobody can write to
// its pipe any more.
type slowRead struct {
	run.Read
	began atomic.Int32
	pipe  [2]int
}

func (*slowRead) Name() string { return "slow" }

func (r *slowRead) Run(ctx context.Context, env *run.Env, input json.RawMessage, prep *run.Prepared) (*run.Result, error) {
	r.began.Add(1)
	if _, err := unix.Read(r.pipe[0], make([]byte, 1)); err != nil {
		return nil, err
	}
	return r.Read.Run(ctx, env, input, prep)
}

// stacksWith counts the goroutines that are in a function.
func stacksWith(function string) int {
	buf := make([]byte, 4<<20)
	n := 0
	for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, function+"(") {
			n++
		}
	}
	return n
}

// However many calls are worked on, the next message is heard; afterwards one
// goroutine listens, and none when the connection has ended.
func TestListeners(t *testing.T) {
	const calls = 100
	slow := &slowRead{}
	if err := unix.Pipe2(slow.pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(func() { unix.Close(slow.pipe[1]) })
	t.Cleanup(func() { unix.Close(slow.pipe[0]) })
	r := newRig(t, slow, run.Read{})
	t.Cleanup(end)
	if err := os.WriteFile(filepath.Join(r.dir, "f"), []byte("text\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c, _ := r.connect(r.hello())
	read := func(id, tool string) error {
		o, err := c.Run(t.Context(), agent.Request{CallID: id, Tool: tool, Input: []byte(`{"file_path":"f"}`)}, &sink{})
		if err == nil && o.Err != nil {
			err = o.Err
		}
		if err == nil && !strings.Contains(o.Result.Output, "text") {
			err = fmt.Errorf("%s: %q", id, o.Result.Output)
		}
		return err
	}
	listeners := func() bool {
		return stacksWith("(*Server).listenOn") == 1 && stacksWith("(*relay).watch") == 1
	}

	for i := range calls {
		if err := read(fmt.Sprintf("one%d", i), "read"); err != nil {
			t.Fatal(err)
		}
	}
	testrig.Eventually(t, "one listener after calls in turn", listeners)

	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			if err := read(fmt.Sprintf("all%d", i), "slow"); err != nil {
				t.Error(err)
			}
		})
	}
	testrig.Eventually(t, "all calls at once", func() bool { return slow.began.Load() == calls })
	if err := read("beside", "read"); err != nil {
		t.Error(err)
	}
	end()
	wg.Wait()
	testrig.Eventually(t, "one listener after calls at once", listeners)

	if err := read("after", "read"); err != nil {
		t.Error(err)
	}
	c.Close()
	testrig.Eventually(t, "no listener without a connection", func() bool {
		return stacksWith("(*Server).listenOn") == 0 && stacksWith("(*relay).watch") == 0
	})
}

// strange breaks the threads of the file tools, and leaves its own locked to its
// goroutine, as one does that does not get its identity back.
type strange struct {
	run.Read
	tid atomic.Int64
}

func (*strange) Name() string { return "strange" }

func (r *strange) Run(ctx context.Context, env *run.Env, input json.RawMessage, prep *run.Prepared) (*run.Result, error) {
	runtime.LockOSThread()
	r.tid.Store(int64(unix.Gettid()))
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), 0, ^uintptr(0)); e != 0 {
		return nil, e
	}
	return r.Read.Run(ctx, env, input, prep)
}

// A thread that may have an identity of others' does not go on as the listener's.
func TestListenerOfAStrangeThread(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to take the identity of somebody else")
	}
	tool := &strange{}
	r := newRig(t, tool)
	c, _ := r.connect(r.hello())
	o, err := c.Run(t.Context(), agent.Request{CallID: "a", Tool: "strange", Input: []byte(`{"file_path":"f"}`)}, &sink{})
	if err != nil || o.Err == nil {
		t.Fatalf("%+v, %v", o, err)
	}
	if r.server.session.root.Err() == nil {
		t.Fatal("the threads of the file tools are not broken")
	}
	testrig.Eventually(t, "the thread ends", func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tool.tid.Load()))
		return os.IsNotExist(err)
	})
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestRelay(t *testing.T) {
	var wg sync.WaitGroup
	var started atomic.Int32
	r := &relay{patience: time.Hour, wg: &wg, listen: func() { started.Add(1) }}
	if turn := r.begin(); !r.end(turn) {
		t.Error("who was quick does not listen again")
	}
	first := r.begin()
	r.pass()
	second := r.begin()
	if r.end(first) {
		t.Error("who was slow listens beside another")
	}
	if !r.end(second) {
		t.Error("the end of another's work took the turn away")
	}
	if n := started.Load(); n != 1 {
		t.Errorf("%d goroutines listen for one slow work", n)
	}
	r.patience = time.Millisecond
	turn := r.begin()
	testrig.Eventually(t, "the timer", func() bool { return started.Load() == 2 })
	if r.end(turn) {
		t.Error("who was slow listens again")
	}
	r.close()
	wg.Wait()
	// Where there is no timer, somebody listens at once.
	if r.end(r.begin()) || started.Load() != 3 {
		t.Error("nobody listens during work without a timer")
	}
}
