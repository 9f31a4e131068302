package process

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/toold/toold/internal/sandbox"
)

func TestInnermostPID(t *testing.T) {
	for in, want := range map[string]int{
		"Name:\tx\nNSpid:\t300\t17\n": 17, "NSpid:\t300\n": 0, "NSpid:\t300\tx\n": 0, "": 0, "NSpid:\t9\t8\t7\n": 7,
	} {
		if got := innermostPID([]byte(in)); got != want {
			t.Errorf("%q: %d, want %d", in, got, want)
		}
	}
}

func TestStartTime(t *testing.T) {
	for in, want := range map[string]uint64{
		"7 (a) b) (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20": 4711,
		"7 (a": 0, "": 0, "7 (a) S 1": 0,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(dir+"/stat", []byte(in), 0o644); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		got, err := startTime(f)
		if got != want || (err != nil) != (want == 0) {
			t.Errorf("%q: %d, %v, want %d", in, got, err, want)
		}
		f.Close()
	}
}

// A process is the one that it was: by its start time, and after its end.
func TestProcess(t *testing.T) {
	cmd := exec.Command("/bin/sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	exited := make(chan struct{})
	p, err := Open(cmd.Process.Pid, 0, func() { close(exited) })
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	again, err := Open(p.PID(), p.Start(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(p.PID(), p.Start()+1, nil); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("another start time: %v, want gone", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-again.Done():
		t.Error("what is closed is done")
	default:
	}
	if err := p.Alive(); err != nil {
		t.Error(err)
	}
	if path, err := p.CgroupV2(); err != nil || path == "" {
		t.Errorf("cgroup %q, %v", path, err)
	}
	if _, err := p.Thread(p.PID()); err == nil {
		t.Error("a process without a namespace has a thread with an id inside")
	}
	if err := p.Signal(9); err != nil {
		t.Error(err)
	}
	for _, c := range []<-chan struct{}{exited, p.Done()} {
		select {
		case <-c:
		case <-time.After(time.Minute):
			t.Fatal("nobody saw the end")
		}
	}
	if err := p.Alive(); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("alive after its end: %v", err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it ended by itself")
	}
	if err := p.Signal(9); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("signal after its end: %v, want gone", err)
	}
}

// TestReadWhileItIsClosed: who looks at a process that another goroutine lets go of is told that
// it is gone, and reads nothing of whatever has the number of its descriptor by then.
func TestReadWhileItIsClosed(t *testing.T) {
	t.Parallel()
	for range 50 {
		p, err := Open(os.Getpid(), 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			var err error
			for err == nil {
				_, err = p.Read("stat")
			}
			done <- Gone(err)
		}()
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, sandbox.ErrGone) {
			t.Fatalf("got %v", err)
		}
	}
}
