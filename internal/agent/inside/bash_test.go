package inside

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
)

func TestBashOutcome(t *testing.T) {
	r := newRig(t)
	c, _ := r.connect(r.hello())
	for i, tc := range []struct {
		command  string
		out      string
		trailer  string
		code     int
		signal   string
		reason   run.Reason
		isError  bool
		contains bool
	}{
		{command: "true", reason: run.ReasonExit},
		{command: "echo hi", out: "hi\n", reason: run.ReasonExit},
		{command: "exit 3", code: 3, trailer: "exit code 3", reason: run.ReasonExit, isError: true},
		{command: "echo 1; echo 2 >&2; echo 3; echo 4 >&2", out: "1\n2\n3\n4\n", reason: run.ReasonExit},
		{command: "kill -SEGV $$", code: -1, signal: "SIGSEGV", trailer: "killed by SIGSEGV", reason: run.ReasonSignal, isError: true},
		{command: "kill -KILL $$", code: -1, signal: "SIGKILL", trailer: "killed by SIGKILL", reason: run.ReasonSignal, isError: true},
		{command: "kill -34 $$", code: -1, signal: "SIG34", trailer: "killed by SIG34", reason: run.ReasonSignal, isError: true},
		{command: "cat; read x; echo $?", out: "1\n", reason: run.ReasonExit},
		{command: "tty", out: "not a tty\n", code: 1, trailer: "exit code 1", reason: run.ReasonExit, isError: true},
		{command: "echo $0 $- $#; shopt -q login_shell || echo no login", out: "/bin/bash hBc 0\nno login\n", reason: run.ReasonExit},
		{command: "printf x > /dev/stdout; printf y > /dev/stderr", out: "xy", reason: run.ReasonExit},
		{command: "printf '\\xff\\x00z'", out: "\xff\x00z", reason: run.ReasonExit},
		{command: "ls /proc/self/fd | tr '\\n' ' '", out: "0 1 2 3 ", reason: run.ReasonExit},
		{command: "trap", out: "", reason: run.ReasonExit},
		{command: "ulimit -c; ulimit -Hc", out: "0\n0\n", reason: run.ReasonExit},
		{command: "grep -E '^(SigBlk|SigIgn|NoNewPrivs|Seccomp):' /proc/self/status | tr -s '\\t\\n' ' '", out: "SigBlk: 0000000000000000 SigIgn: 0000000000000000 NoNewPrivs: 1 Seccomp: 2 ", reason: run.ReasonExit},
	} {
		out, o := r.bash(c, fmt.Sprint("c", i), tc.command)
		if out != tc.out {
			t.Errorf("%s: output %q, want %q", tc.command, out, tc.out)
		}
		if o.Result.Output != tc.trailer || o.Result.IsError != tc.isError {
			t.Errorf("%s: result %q is_error %v, want %q %v", tc.command, o.Result.Output, o.Result.IsError, tc.trailer, tc.isError)
		}
		e := o.Exit
		if e.Code != tc.code || e.Signal != tc.signal || e.Reason != tc.reason {
			t.Errorf("%s: exit %+v, want %d %q %q", tc.command, e, tc.code, tc.signal, tc.reason)
		}
		if e.MaxMemoryBytes <= 0 {
			t.Errorf("%s: no bill: %+v", tc.command, e)
		}
	}
}

func TestBashRunsAsToolUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to change ids")
	}
	r := newRig(t)
	c, _ := r.connect(r.hello())
	out, _ := r.bash(c, "c", "id -u; id -g; id -G; grep CapEff /proc/self/status | cut -f2; echo x > f; stat -c %u:%g f")
	var tag int // without cgroups, the call is known by a group of its own
	const want = "1000\n1000\n1000 %d\n0000000000000000\n1000:1000\n"
	if _, err := fmt.Sscanf(out, want, &tag); err != nil || out != fmt.Sprintf(want, tag) || tag < 50000 || tag > 59999 {
		t.Errorf("got %q, want %q", out, want)
	}
}

func TestBashWorkdirAndEnv(t *testing.T) {
	r := newRig(t)
	if err := os.Mkdir(filepath.Join(r.dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/self/fd", filepath.Join(r.dir, "fds")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/self/cwd", filepath.Join(r.dir, "cwd")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c, _ := r.connect(r.hello())
	call := func(id string, in map[string]any, env ...string) (string, *agent.Outcome) {
		b, _ := json.Marshal(in)
		var s sink
		o, err := c.Run(t.Context(), agent.Request{CallID: id, Tool: "bash", Input: b, Env: env}, &s)
		if err != nil {
			t.Fatal(err)
		}
		return string(s.data), o
	}
	if out, _ := call("a", map[string]any{"command": "pwd"}); out != r.dir+"\n" {
		t.Errorf("pwd %q", out)
	}
	if out, _ := call("b", map[string]any{"command": "pwd", "workdir": "sub"}); out != r.dir+"/sub\n" {
		t.Errorf("pwd %q", out)
	}
	bad := map[string]run.Code{
		"/proc/self/fd/3": run.CodeInvalidPath, "/proc/self/cwd": run.CodeInvalidPath, "/proc/self/root": run.CodeInvalidPath,
		"cwd": run.CodeInvalidPath, "fds/0": run.CodeInvalidPath, "none": run.CodeInvalidPath, "file": run.CodeInvalidPath,
		"a\x00b": run.CodeInvalidPath, strings.Repeat("x/", 3000): run.CodeInvalidPath,
	}
	n := 0
	for dir, code := range bad {
		n++
		_, o := call(fmt.Sprint("bad", n), map[string]any{"command": "pwd", "workdir": dir})
		if o.Err == nil || o.Err.Code != code || o.Result != nil {
			t.Errorf("workdir %.40q: %+v, want %s", dir, o, code)
		}
	}
	out, _ := call("env", map[string]any{"command": "env | sort"}, "X=1", "HOME=/h")
	want := []string{"HOME=/h", "LANG=C.UTF-8", "PATH=/usr/local/bin:/usr/bin:/bin", "PWD=" + r.dir, "SHLVL=0", "X=1", "_=/usr/bin/env"}
	got := strings.Split(strings.TrimSpace(out), "\n")
	if fmt.Sprint(got) != fmt.Sprint(want) {
		want[4] = "SHLVL=1" // older bash
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("environment %q, want %q", got, want)
		}
	}
	for i, kv := range []string{
		"BASH_ENV=/x", "ENV=/x", "BASH_FUNC_ls%%=() { :; }", "LD_PRELOAD=/x", "GIT_DIR=/x",
		"SHELLOPTS=xtrace", "BASHOPTS=extdebug", "PS4=$(id)", "PROMPT_COMMAND=id", "IFS=/", "novalue", "=x", "A=\x00",
	} {
		_, o := call(fmt.Sprint("env", i), map[string]any{"command": "env"}, kv)
		if o.Err == nil || o.Err.Code != run.CodeInvalidInput {
			t.Errorf("%q: %+v", kv, o)
		}
	}
	for i, in := range []map[string]any{
		{"command": ""},
		{"command": " \n"},
		{"command": "a\x00"},
		{"command": strings.Repeat("x", 128<<10)},
		{"command": "true", "timeout": -1},
		{"command": "true", "timeout": 1 << 60},
		{"command": "true", "background": true},
		{"command": 1},
	} {
		_, o := call(fmt.Sprint("in", i), in)
		if o.Err == nil || o.Err.Code != run.CodeInvalidInput {
			t.Errorf("%.60v: %+v", in, o)
		}
	}
	_, o := call("big", map[string]any{"command": "true"}, "A="+strings.Repeat("x", 200<<10))
	if o.Err == nil || o.Err.Code != run.CodeInvalidInput {
		t.Errorf("huge environment: %+v", o)
	}
}

// A lease on a file of the worktree would make everybody who opens it wait.
func TestBashTakesNoLease(t *testing.T) {
	r := newRig(t)
	c, _ := r.connect(r.hello())
	out, _ := r.bash(c, "a", `: > f; python3 -c '
import fcntl
f = open("f")
for cmd in fcntl.F_SETLEASE, 1040:
    try:
        fcntl.fcntl(f, cmd, fcntl.F_RDLCK)
        print("taken")
    except PermissionError as e:
        print("refused")
'`)
	if out != "refused\nrefused\n" {
		t.Errorf("leases: %q", out)
	}
}

func TestBashShellMissing(t *testing.T) {
	r := newRig(t)
	h := r.hello()
	h.Shell = []string{"/no/such/shell"}
	c, _ := r.connect(h)
	var s sink
	o, err := c.Run(t.Context(), bashCall("c", "true"), &s)
	if err != nil {
		t.Fatal(err)
	}
	if o.Err == nil || o.Err.Code != run.CodeSandboxFailed || !strings.Contains(o.Err.Message, "/no/such/shell") {
		t.Errorf("%+v", o)
	}
}

func TestBashBackground(t *testing.T) {
	r := newRig(t)
	c, _ := r.connect(r.hello())
	out, o := r.bash(c, "c", "sleep 300 & echo $!") // does not wait for the sleep: it is killed
	if o.Exit.BackgroundKilled != 1 || o.Exit.Code != 0 {
		t.Errorf("exit %+v", o.Exit)
	}
	gone(t, strings.TrimSpace(out))
	// Held open by somebody whom we cannot find without a cgroup: it ends all the same.
	out, o = r.bash(c, "d", "setsid bash -c ': > born; exec sleep 300' & "+until("born")+"; echo $!")
	if o.Exit.Code != 0 {
		t.Errorf("exit %+v", o.Exit)
	}
	sleeper, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		t.Fatalf("no pid in %q", out)
	}
	if os.Getuid() != 0 { // root's calls have a group id, by which it was found
		_ = unix.Kill(sleeper, unix.SIGKILL)
	}
	gone(t, strconv.Itoa(sleeper))
}

// What a command leaves behind is asked to end before it is killed, and has the grace for it
// that the call has: also what it says then is of the output.
func TestBackgroundIsAskedToEnd(t *testing.T) {
	t.Parallel()
	const leave = `(trap 'trap "" TERM; echo asked; rm lock; exit' TERM; : > lock; while :; do sleep 0.01; done) & ` // a lock as git holds one
	for _, tc := range []struct {
		name, then string
		reason     run.Reason
	}{
		{"done", "exit 3", run.ReasonExit},
		{"aborted", "echo now; exec sleep 300", run.ReasonAborted},
		{"ended", "echo now; exec sleep 300", run.ReasonSessionEnded},
		{"timeout", "exec sleep 300", run.ReasonTimeout},
		{"output", "exec yes", run.ReasonOutputLimit},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c, _ := r.connect(r.hello())
			req := bashCall(tc.name, leave+until("lock")+"; "+tc.then)
			s := &sink{}
			switch tc.reason {
			case run.ReasonTimeout:
				req.TimeoutMillis = 5000 // the lock is there long before
			case run.ReasonOutputLimit:
				req.MaxOutput = 100_000
			case run.ReasonAborted, run.ReasonSessionEnded:
				s.hook = func(int64) error { return c.Abort(tc.name, tc.reason) }
			}
			o, err := c.Run(t.Context(), req, s)
			if err != nil || o.Err != nil {
				t.Fatal(err, o)
			}
			if o.Exit.Reason != tc.reason || tc.reason != run.ReasonOutputLimit && !strings.HasSuffix(string(s.data), "asked\n") {
				t.Errorf("%+v, output %q", o.Exit, s.data[max(0, len(s.data)-100):])
			}
			if _, err := os.Lstat(filepath.Join(r.dir, "lock")); !os.IsNotExist(err) {
				t.Errorf("the lock: %v", err)
			}
		})
	}
}

// A git that had to be killed leaves its lock, which the answer names; another one's lock,
// from before the call, is not of this call.
func TestLocksLeftBehind(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c, _ := r.connect(r.hello())
	const git = `mkdir -p .git sub; : > .git/old.lock; touch -d '1 hour ago' .git/old.lock; cp "$(command -v bash)" git; `
	out, o := r.bash(c, "c", git+`(cd sub; exec ../git -c 'trap "" TERM; : > ../.git/index.lock; while :; do sleep 0.01; done') & `+until(".git/index.lock"))
	if o.Exit.BackgroundKilled == 0 || len(o.Exit.Locks) != 1 || !strings.HasSuffix(o.Exit.Locks[0], "/.git/index.lock") {
		t.Errorf("%q %+v", out, o.Exit)
	}
	if !strings.Contains(o.Result.Output, "git was killed and left "+o.Exit.Locks[0]+": ") {
		t.Errorf("%q", o.Result.Output)
	}
	_, o = r.bash(c, "d", "sleep 300 & ")
	if len(o.Exit.Locks) != 0 {
		t.Errorf("no git was killed: %+v", o.Exit)
	}
	// The one that the call runs itself is named too, whatever ends it.
	for _, why := range []run.Reason{run.ReasonAborted, run.ReasonSessionEnded, run.ReasonTimeout} {
		s, req := &sink{}, bashCall(string(why), `rm -f .git/index.lock; exec ./git -c 'trap "" TERM; : > .git/index.lock; echo now; while :; do sleep 0.01; done'`)
		if why == run.ReasonTimeout {
			req.TimeoutMillis = 5000
		} else {
			s.hook = func(int64) error { return c.Abort(string(why), why) }
		}
		o, err := c.Run(t.Context(), req, s)
		if err != nil || o.Err != nil {
			t.Fatal(err, o)
		}
		if o.Exit.Reason != why || len(o.Exit.Locks) != 1 || !strings.Contains(o.Result.Output, "git was killed and left "+filepath.Join(r.dir, ".git/index.lock")+": ") {
			t.Errorf("%s: %q %+v", why, o.Result.Output, o.Exit)
		}
	}
}

// gone waits until there is no process of this pid.
func gone(t *testing.T, pid string) {
	t.Helper()
	testrig.Eventually(t, "the end of process "+pid, func() bool {
		b, err := os.ReadFile("/proc/" + pid + "/stat")
		return err != nil || bytes.Contains(b, []byte(") Z "))
	})
}

// Whatever a command does about it, it ends: SIGTERM, and SIGKILL after the grace.
// Each says its id when it is as far as it is to be.
func TestBashIsEnded(t *testing.T) {
	r := newRig(t)
	c, _ := r.connect(r.hello())
	for i, tc := range []struct {
		command, then string
		stops         bool
		code          int
		signal        string
	}{
		{command: "echo $$; sleep 300", code: -1, signal: "SIGTERM"},
		{command: "trap 'echo got; exit 7' TERM; sleep 300 & echo $$; wait", then: "got\n", code: 7},
		{command: "trap '' TERM INT HUP; echo $$; while :; do :; done", code: -1, signal: "SIGKILL"},
		{command: "echo $$; kill -STOP $$", stops: true, code: -1, signal: "SIGTERM"},
	} {
		id, pid := fmt.Sprint(i), ""
		s := &sink{}
		s.hook = func(int64) error {
			if pid != "" {
				return nil
			}
			pid = strings.TrimSpace(string(s.data))
			if tc.stops {
				stopped(t, pid)
			}
			return c.Abort(id, run.ReasonAborted)
		}
		o, err := c.Run(t.Context(), bashCall(id, tc.command), s)
		if err != nil || o.Err != nil {
			t.Fatal(err, o)
		}
		e := o.Exit
		if string(s.data) != pid+"\n"+tc.then || e.Reason != run.ReasonAborted || e.Code != tc.code || e.Signal != tc.signal {
			t.Errorf("%s: %q %+v", tc.command, s.data, e)
		}
		gone(t, pid)
	}
}

// A command that is ended because it takes too much of the host has no grace.
func TestBashIsEndedAtOnce(t *testing.T) {
	r := newRig(t)
	c, _ := r.connect(r.hello())
	for _, why := range []run.Reason{run.ReasonDisk, run.ReasonMemory} {
		s := &sink{}
		s.hook = func(int64) error { return c.Abort(string(why), why) }
		o, err := c.Run(t.Context(), bashCall(string(why), "trap 'echo got; exit 7' TERM; sleep 300 & echo ready; wait"), s)
		if err != nil || o.Err != nil {
			t.Fatal(err, o)
		}
		if e := o.Exit; string(s.data) != "ready\n" || e.Reason != why || e.Code != -1 || e.Signal != "SIGKILL" {
			t.Errorf("%s: %q %+v", why, s.data, e)
		}
	}
}

func TestBashTimeout(t *testing.T) {
	r := newRig(t)
	c, _ := r.connect(r.hello())
	in, _ := json.Marshal(map[string]any{"command": "sleep 300", "timeout": 300})
	o, err := c.Run(t.Context(), agent.Request{CallID: "input", Tool: "bash", Input: in}, &sink{})
	if err != nil || o.Err != nil {
		t.Fatal(err, o)
	}
	if e := o.Exit; e.Reason != run.ReasonTimeout || e.Code != -1 || e.Signal != "SIGTERM" {
		t.Errorf("%+v", e)
	}
	if want := "timed out after 300ms (partial output above)"; o.Result.Output != want {
		t.Errorf("trailer %q, want %q", o.Result.Output, want)
	}
	// The call's own bound, in which the program also has to be started.
	req := bashCall("wall", "sleep 300")
	req.TimeoutMillis = 4000
	if o, err = c.Run(t.Context(), req, &sink{}); err != nil || o.Err != nil {
		t.Fatal(err, o)
	}
	if o.Exit.Reason != run.ReasonTimeout {
		t.Errorf("%+v", o.Exit)
	}
}

func TestBashOutputLimit(t *testing.T) {
	r := newRig(t)
	c, _ := r.connect(r.hello())
	req := bashCall("c", "yes")
	req.MaxOutput = 100_001
	var s sink
	o, err := c.Run(t.Context(), req, &s)
	if err != nil || o.Err != nil {
		t.Fatal(err, o.Err)
	}
	if len(s.data) != 100_001 || o.Exit.Reason != run.ReasonOutputLimit || !strings.HasPrefix(o.Result.Output, "killed: it printed more than limits.output allows") {
		t.Errorf("%d bytes, %+v, %q", len(s.data), o.Exit, o.Result.Output)
	}
	req = bashCall("d", "head -c 100001 /dev/zero")
	req.MaxOutput = 100_001
	if o, err = c.Run(t.Context(), req, &sink{}); err != nil || o.Exit.Reason != run.ReasonExit {
		t.Errorf("exactly the limit: %v %+v", err, o)
	}
}

func TestBashSplit(t *testing.T) {
	r := newRig(t)
	c, _ := r.connect(r.hello())
	req := bashCall("c", "for i in 1 2 3; do echo o$i; echo e$i >&2; done")
	req.Split = true
	var s sink
	o, err := c.Run(t.Context(), req, &s)
	if err != nil || o.Err != nil || s.gap != nil {
		t.Fatal(err, o, s.gap)
	}
	if string(s.errOut) != "e1\ne2\ne3\n" || len(s.data) != 18 {
		t.Errorf("stderr %q of %q", s.errOut, s.data)
	}
}

// A gigabyte flows with memory that does not grow with it.
func TestBashGigabyte(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	r := newRig(t)
	c, _ := r.connect(r.hello())
	const size = 1 << 30
	counter := &countingSink{conn: c, call: "c"}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began := time.Now()
	o, err := c.Run(t.Context(), bashCall("c", fmt.Sprintf("yes | head -c %d", size)), counter)
	if err != nil || o.Err != nil || counter.bad != nil {
		t.Fatal(err, o, counter.bad)
	}
	t.Logf("%.2f GB/s, %d chunks, largest heap %d KiB", float64(size)/time.Since(began).Seconds()/1e9, counter.chunks, counter.heap>>10)
	if counter.n != size || o.OutputEnd != size {
		t.Errorf("%d bytes, end %d", counter.n, o.OutputEnd)
	}
	runtime.ReadMemStats(&after)
	if counter.heap > before.HeapAlloc+16<<20 {
		t.Errorf("heap grew from %d to %d", before.HeapAlloc, counter.heap)
	}
}

type countingSink struct {
	conn   *agent.Conn
	call   string
	n      int64
	chunks int
	heap   uint64
	bad    error
}

func (s *countingSink) Output(offset int64, _ bool, p []byte) error {
	if offset != s.n {
		s.bad = fmt.Errorf("offset %d, expected %d", offset, s.n)
	}
	s.n += int64(len(p))
	s.chunks++
	if s.chunks%2000 == 0 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		s.heap = max(s.heap, m.HeapAlloc)
	}
	return s.conn.Ack(s.call, s.n)
}

func (s *countingSink) Metadata(map[string]any) {}

func TestAbort(t *testing.T) {
	r := newRig(t)
	c, _ := r.connect(r.hello())
	s := &sink{hook: func(int64) error { return c.Abort("c", run.ReasonAborted) }}
	o, err := c.Run(t.Context(), bashCall("c", "echo a; sleep 300"), s)
	if err != nil || o.Err != nil {
		t.Fatal(err, o.Err)
	}
	if o.Exit.Reason != run.ReasonAborted || o.Result.Output != "aborted" || string(s.data) != "a\n" {
		t.Errorf("%+v %q", o.Exit, s.data)
	}
	s.hook = func(int64) error { return c.Abort("d", run.ReasonSessionEnded) }
	o, err = c.Run(t.Context(), bashCall("d", "echo a; sleep 300"), s)
	if err != nil || o.Exit.Reason != run.ReasonSessionEnded {
		t.Errorf("%v %+v", err, o)
	}
	if err := c.Abort("nobody", run.ReasonAborted); err != nil {
		t.Error(err)
	}
}

// Aborts that race with everything a short call does leave no process and no
// goroutine, and always bring an outcome.
func TestAbortRace(t *testing.T) {
	r := newRig(t)
	c, _ := r.connect(r.hello())
	r.bash(c, "warm", "true")
	before := runtime.NumGoroutine()
	n := 1000
	if testing.Short() {
		n = 100
	}
	reasons := make(map[string]int)
	for i := range n {
		id := fmt.Sprint("c", i)
		done := make(chan struct{})
		go func() {
			defer close(done)
			time.Sleep(time.Duration(i%200) * 10 * time.Microsecond)
			if err := c.Abort(id, run.ReasonAborted); err != nil {
				t.Error(err)
			}
		}()
		o, err := c.Run(t.Context(), bashCall(id, "sleep 0.001"), &sink{})
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case o.Err != nil:
			reasons[string(o.Err.Code)]++
		default:
			reasons[string(o.Exit.Reason)]++
		}
		<-done
		if err := c.Forget(id); err != nil {
			t.Fatal(err)
		}
	}
	t.Log(reasons)
	if err := c.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before+2 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if now := runtime.NumGoroutine(); now > before+2 {
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines before, %d after\n%s", before, now, buf[:runtime.Stack(buf, true)])
	}
}

// A program reads what it is given, as by a pipe, and nothing of another call. What it
// does not read holds up nobody.
func TestBashStdin(t *testing.T) {
	r := newRig(t, run.Bash{})
	c, _ := r.connect(r.hello())
	long := strings.Repeat("0123456789abcde\n", run.MaxStdin/16)
	for i, tc := range []struct{ name, command, stdin, out string }{
		{"read", "cat; echo end", "a\nb", "a\nbend\n"},
		{"any bytes of text", "od -An -c", "\x00ü", "  \\0 303 274\n"},
		{"a script", "bash", "echo hi; exit 0", "hi\n"},
		{"as much as may be", "wc -c", long, fmt.Sprintln(len(long))},
		{"read in part", "head -c 3", long, "012"},
		{"not read", "echo ok", long, "ok\n"},
		{"closed", "exec <&-; echo ok", long, "ok\n"},
		{"opened again", "cat /dev/stdin", "again", "again"},
		{"left to a process behind", "sleep 300 <&0 >/dev/null 2>&1 & echo ok", long, "ok\n"},
		{"none", "cat; echo end", "", "end\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in, _ := json.Marshal(map[string]any{"command": tc.command, "stdin": tc.stdin})
			var s sink
			o, err := c.Run(t.Context(), agent.Request{CallID: fmt.Sprint("c", i), Tool: "bash", Input: in}, &s)
			if err != nil || o.Err != nil || o.Result.IsError || string(s.data) != tc.out {
				t.Fatalf("%q, want %q; %+v, %v", s.data, tc.out, o, err)
			}
			if out, _ := r.bash(c, fmt.Sprint("after", i), "cat; ls /proc/self/fd | tr '\\n' ' '"); out != "0 1 2 3 " {
				t.Errorf("the next command prints %q", out)
			}
		})
	}
	in, _ := json.Marshal(map[string]any{"command": "cat", "stdin": long + "x"})
	if o, err := c.Run(t.Context(), agent.Request{CallID: "big", Tool: "bash", Input: in}, &sink{}); err != nil || o.Err == nil || o.Err.Code != run.CodeInvalidInput {
		t.Errorf("too long: %+v, %v", o, err)
	}
	in, _ = json.Marshal(map[string]any{"command": "sleep 300", "stdin": long, "timeout": 200})
	if o, err := c.Run(t.Context(), agent.Request{CallID: "late", Tool: "bash", Input: in}, &sink{}); err != nil || o.Exit == nil || o.Exit.Reason != run.ReasonTimeout {
		t.Errorf("a command that does not read and is late: %+v, %v", o, err)
	}
}
