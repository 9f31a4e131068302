package attack

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// E1: a call ends when its leader does, whatever it left behind; what it left is
// killed and counted.
func TestE1Survivors(t *testing.T) {
	s := newScene(t, "")
	for _, cmd := range []string{
		"setsid sleep 300 & echo hi",
		"(setsid bash -c 'sleep 300 & sleep 300' &) ; echo hi",
		"sleep 300 & disown; echo hi",
		"setsid nohup sleep 300 >/dev/null 2>&1 & echo hi",
		"exec 9>&1; (sleep 300 &) ; echo hi",
	} {
		c := s.bash(t, cmd)
		if c.Metadata["reason"] != "exit" {
			t.Errorf("%s: it was waited for, and ended by %v", cmd, c.Metadata["reason"])
		}
		if !strings.HasPrefix(c.Output, "hi") {
			t.Errorf("%s: %q %v", cmd, c.Output, c.Error)
		}
		if n, _ := c.Metadata["background_killed"].(float64); n < 1 {
			t.Errorf("%s: background_killed = %v", cmd, c.Metadata["background_killed"])
		}
	}
	if out := s.bash(t, "pgrep -c sleep; true").Output; strings.TrimSpace(out) != "0" {
		t.Errorf("still there: %q", out)
	}
	// Control: where nothing kills it the sleeper lives on.
	if out := (weak{}).output(t, "/bin/bash", "-c", "bash -c 'setsid sleep 3600 & echo hi'; timeout 60 bash -c 'until pgrep -x sleep; do :; done' >/dev/null && echo lives"); !strings.Contains(out, "lives") {
		t.Errorf("control: %q", out)
	}
}

// E2: the same, and then the session ends.
func TestE2SurvivorsAtEnd(t *testing.T) {
	s := newScene(t, "")
	pid, ok := agentPID(s.attacker.ID)
	if !ok {
		t.Fatal("no agent")
	}
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	must(t, err)
	alive := func() int {
		if s.base != 0 {
			return len(processesIn(s.base))
		}
		n := 0
		all, _ := filepath.Glob("/proc/[0-9]*/ns/pid")
		for _, p := range all {
			if l, _ := os.Readlink(p); l == ns {
				n++
			}
		}
		return n
	}
	go tryCall(s.a, s.attacker.ID, "bash", map[string]any{"command": "setsid bash -c 'setsid sleep 3600 & sleep 3600' & sleep 3600", "timeout": longest.Milliseconds()})
	testrig.Eventually(t, "the sleepers run", func() bool { return alive() > 3 })
	if _, err := s.a.EndSession(t.Context(), s.attacker.ID, client.EndOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	testrig.Eventually(t, "nothing lives", func() bool { return alive() == 0 })
}

// E3: processes that will not end.
func TestE3Stubborn(t *testing.T) {
	s := newScene(t, "")
	for _, cmd := range []string{
		"trap '' TERM INT HUP; while :; do :; done",
		"kill -STOP $$",
		"trap '' TERM; sleep 300 & wait; sleep 300",
	} {
		start := time.Now()
		c := call(t, s.a, s.attacker.ID, "bash", map[string]any{"command": cmd, "timeout": 500})
		if took := time.Since(start); took > patience {
			t.Errorf("%s: took %s", cmd, took)
		}
		if c.Metadata["reason"] != "timeout" || !strings.Contains(c.Output, "timed out after") {
			t.Errorf("%s: %v %q", cmd, c.Metadata, c.Output)
		}
	}
}

// E4: endless output costs a bounded amount of memory and nobody else's time.
func TestE4Output(t *testing.T) {
	s := newScene(t, "")
	pid, ok := agentPID(s.attacker.ID)
	if !ok {
		t.Fatal("no agent")
	}
	daemonBefore, agentBefore := rss(s.daemon.Cmd.Process.Pid), rss(pid)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 5 {
			if c, err := tryCall(s.b, s.neighbour.ID, "bash", map[string]any{"command": "echo here"}); err != nil || strings.TrimSpace(c.Output) != "here" {
				t.Errorf("neighbour meanwhile: %v", err)
			}
		}
	})
	commands := []string{"yes | head -c 1G", "yes | tr -d '\\n' | head -c 300M", "yes | head -c 200M >&2"}
	if testing.Short() {
		commands = []string{"yes | head -c 200M", "yes | tr -d '\\n' | head -c 100M", "yes | head -c 100M >&2"}
	}
	for _, cmd := range commands {
		c := call(t, s.a, s.attacker.ID, "bash", map[string]any{"command": cmd, "timeout": longest.Milliseconds()})
		if c.Metadata["truncated"] != true {
			t.Errorf("%s: metadata %v", cmd, c.Metadata)
		}
		if len(c.Output) > 60000 {
			t.Errorf("%s: output of %d bytes", cmd, len(c.Output))
		}
	}
	wg.Wait()
	if grown := rss(s.daemon.Cmd.Process.Pid) - daemonBefore; grown > 48<<20 {
		t.Errorf("the daemon grew by %d MiB", grown>>20)
	}
	if grown := rss(pid) - agentBefore; grown > 16<<20 {
		t.Errorf("the agent grew by %d MiB", grown>>20)
	}
}

func rss(pid int) (n int64) {
	for l := range strings.Lines(read(fmt.Sprintf("/proc/%d/status", pid))) {
		if after, ok := strings.CutPrefix(l, "VmRSS:"); ok {
			fmt.Sscan(after, &n)
		}
	}
	return n << 10
}

// E5: full temporary directories and oversized files are the attacker's problem.
func TestE5Fill(t *testing.T) {
	s := newScene(t, "")
	for _, dir := range []string{"/tmp", "/dev/shm", "/home/tool"} {
		c := s.bash(t, "/workspace/probe fill "+dir)
		got := parseOutcomes(c.Output)
		switch got["fill-end"] {
		case "ENOSPC", "EFBIG", "EDQUOT":
		default:
			if !strings.Contains(c.Output, "XFSZ") && c.Metadata["reason"] != "memory" {
				t.Errorf("%s: %q %v", dir, c.Output, c.Metadata)
			}
		}
		if c := s.bash(t, "echo next"); !strings.HasPrefix(c.Output, "next") || c.IsError {
			t.Errorf("%s full: next call %q %v", dir, c.Output, c.Error)
		}
	}
	s.bash(t, "rm -rf /tmp/* /dev/shm/* /home/tool/*")
	c := s.bash(t, "head -c 100M /dev/zero > /workspace/big; echo rc $?; ls -l /workspace/big | awk '{print $5}'")
	if st, err := os.Stat(filepath.Join(s.tree, "big")); err != nil || st.Size() > 64<<20 {
		t.Errorf("file size limit: %v %q", err, c.Output)
	}
	if out := s.bash(t, "echo fine > /tmp/x && cat /tmp/x").Output; strings.TrimSpace(out) != "fine" {
		t.Errorf("control: after the clean-up %q", out)
	}
}

// E5: the same with files that are empty.
func TestE5Inodes(t *testing.T) {
	s := newScene(t, "")
	for _, dir := range []string{"/home/tool", "/tmp"} {
		c, err := tryCall(s.a, s.attacker.ID, "bash", map[string]any{"command": "/workspace/probe inodes " + dir, "timeout": longest.Milliseconds()})
		if err != nil {
			holds(t, dir, false, "no session is left to try it: %v", err)
			continue
		}
		got := parseOutcomes(c.Output)
		holds(t, dir, got["inodes-end"] == "ENOSPC", "not bounded: %v %v", got, c.Metadata)
		c, err = tryCall(s.a, s.attacker.ID, "bash", map[string]any{"command": "find " + dir + " -type f -delete; echo fine > /tmp/x && cat /tmp/x"})
		holds(t, "next", err == nil && strings.TrimSpace(c.Output) == "fine", "the session does not go on: %v", err)
	}
}

// E6: ten thousand orphans are reaped.
func TestE6Zombies(t *testing.T) {
	s := newScene(t, "")
	n := 10000
	if testing.Short() {
		n = 500
	}
	c := call(t, s.a, s.attacker.ID, "bash", map[string]any{"command": fmt.Sprintf("/workspace/probe zombies %d", n), "timeout": longest.Milliseconds()})
	if !strings.Contains(c.Output, fmt.Sprintf("zombies %d", n)) {
		t.Errorf("%q %v", c.Output, c.Metadata)
	}
	testrig.Eventually(t, "none is left", func() bool {
		return strings.TrimSpace(s.bash(t, "ps -e -o stat= 2>/dev/null | grep -c Z; true").Output) == "0"
	})
}

// E7: a busy session leaves its neighbour room.
func TestE7Busy(t *testing.T) {
	s := newScene(t, "cpus = 1.0")
	var wg sync.WaitGroup
	var took time.Duration
	wg.Go(func() {
		start := time.Now()
		tryCall(s.a, s.attacker.ID, "bash", map[string]any{"command": "for i in 1 2 3 4; do while :; do :; done & done; sleep 3", "timeout": 4000})
		took = time.Since(start)
	})
	for range 10 {
		if c := bash(t, s.b, s.neighbour.ID, "echo here"); strings.TrimSpace(c.Output) != "here" {
			t.Errorf("neighbour: %q", c.Output)
		}
	}
	wg.Wait()
	x, err := s.a.GetSession(t.Context(), s.attacker.ID)
	must(t, err)
	// What the session's start has used comes to it.
	if most := took.Milliseconds()*5/4 + 2000; x.Usage.CPUMillis == 0 || x.Usage.CPUMillis > most {
		t.Errorf("cpu of %s at one core: %d ms", took, x.Usage.CPUMillis)
	}
	if out := s.bash(t, "nproc").Output; strings.TrimSpace(out) != "1" {
		t.Errorf("nproc = %q, want 1 at cpus = 1", out)
	}
}

// E8: nothing waits for input that cannot come.
func TestE8Stdin(t *testing.T) {
	s := newScene(t, "")
	c := s.bash(t, "cat; read -r x; tty; ps -o tty= -p $$; echo end")
	if !strings.Contains(c.Output, "end") || strings.Contains(c.Output, "pts/") {
		t.Errorf("%q", c.Output)
	}
}

// E9: limits of the request itself are refused before anything starts.
func TestE9BadRequests(t *testing.T) {
	s := newScene(t, "")
	for name, in := range map[string]map[string]any{
		"timeout negative":  {"command": "touch ran", "timeout": -1},
		"timeout 2^63":      {"command": "touch ran", "timeout": uint64(1) << 63},
		"missing directory": {"command": "touch ran", "workdir": "/nowhere"},
		"file as directory": {"command": "touch ran", "workdir": "/etc/passwd"},
		"NUL":               {"command": "touch ran\x00"},
		"long":              {"command": "touch ran #" + strings.Repeat("x", 3<<20)},
	} {
		c, err := tryCall(s.a, s.attacker.ID, "bash", in)
		if err == nil && c.Status == client.CallCompleted && !c.IsError {
			t.Errorf("%s: ran: %q", name, c.Output)
		}
		if _, err := os.Stat(filepath.Join(s.tree, "ran")); err == nil {
			t.Errorf("%s: had an effect", name)
			os.Remove(filepath.Join(s.tree, "ran"))
		}
	}
	env := map[string]string{}
	for i := range 1000 {
		env[fmt.Sprintf("V%d", i)] = strings.Repeat("x", 10000)
	}
	if x, err := s.a.CreateSession(t.Context(), client.SessionCreate{Env: env}); err == nil {
		t.Errorf("10 MB of environment were taken: %s", x.ID)
	}
	if c := s.bash(t, "touch ran && echo ok"); strings.TrimSpace(c.Output) != "ok" {
		t.Errorf("control: %q", c.Output)
	}
}

// E10: the daemon is killed while many sessions are in the middle of a call.
// After the restart each result has every line, in order, once, and each
// command ran once.
func TestE10DaemonKilled(t *testing.T) {
	s := newScene(t, "")
	n := 20
	if testing.Short() {
		n = 4
	}
	const lines = 400
	type running struct{ session, call, tree, pad string }
	var calls []running
	now := int64(0)
	for i := range n {
		tree := s.rig.tree(t)
		x := s.session(t, s.a, client.SessionCreate{Worktree: client.Worktree{Source: tree}})
		// Every second one prints more than the agent holds for a daemon that is away.
		pad := ""
		if i%2 == 1 {
			pad = strings.Repeat("x", 2000)
		}
		raw := fmt.Appendf(nil, `{"timeout":%d,"command":"echo x >> ran; for i in $(seq %d); do echo line $i %s; sleep 0.01; done"}`, longest.Milliseconds(), lines, pad)
		c, err := s.a.CreateCall(t.Context(), x.ID, client.CallCreate{Tool: "bash", Input: raw, WaitMillis: &now}, client.CallOptions{})
		must(t, err)
		calls = append(calls, running{x.ID, c.ID, tree, pad})
	}
	testrig.Eventually(t, "all calls run", func() bool {
		for _, c := range calls {
			if read(filepath.Join(c.tree, "ran")) == "" {
				return false
			}
		}
		return true
	})
	for range 2 { // twice in the middle
		time.Sleep(700 * time.Millisecond)
		s.kill(t)
		s.start(t)
	}
	for _, c := range calls {
		var want strings.Builder
		for i := 1; i <= lines; i++ {
			fmt.Fprintln(&want, strings.TrimSpace(fmt.Sprintf("line %d %s", i, c.pad)))
		}
		var got *client.Call
		testrig.Eventually(t, "call "+c.call+" finishes", func() bool {
			var err error
			got, err = s.a.GetCall(t.Context(), c.call)
			return err == nil && got.Finished()
		})
		r, err := s.a.CallOutput(t.Context(), c.call, client.OutputQuery{})
		must(t, err)
		whole, err := io.ReadAll(r)
		r.Close()
		must(t, err)
		if got.Status != client.CallCompleted || string(whole) != want.String() {
			t.Errorf("%s: %s %v, %d bytes of output, want %d", c.call, got.Status, got.Error, len(whole), want.Len())
		}
		if ran := read(filepath.Join(c.tree, "ran")); ran != "x\n" {
			t.Errorf("%s ran %q", c.call, ran)
		}
	}
	for _, c := range calls {
		s.a.EndSession(t.Context(), c.session, client.EndOptions{Force: true})
	}
	s.fds = countFDs(s.daemon.Cmd.Process.Pid)
	garbage, err := s.admin.GC(t.Context(), client.GCRequest{DryRun: true})
	must(t, err)
	if len(garbage) != 0 {
		t.Errorf("left over: %+v", garbage)
	}
}

// E11: aborts and ends that race with starts leave nothing.
func TestE11Races(t *testing.T) {
	s := newScene(t, "")
	n := 200
	if testing.Short() {
		n = 20
	}
	now := int64(0)
	for i := range n {
		c, err := s.a.CreateCall(t.Context(), s.attacker.ID, client.CallCreate{Tool: "bash", Input: []byte(`{"command":"sleep 3600"}`), WaitMillis: &now}, client.CallOptions{})
		must(t, err)
		time.Sleep(time.Duration(i%7) * 300 * time.Microsecond)
		if _, err := s.a.AbortCall(t.Context(), c.ID); err != nil {
			t.Fatalf("abort %d: %v", i, err)
		}
	}
	testrig.Eventually(t, "all aborted calls have ended", func() bool {
		out := s.bash(t, "pgrep -c sleep; true").Output
		return strings.TrimSpace(out) == "0"
	})
	for i := range n / 10 {
		x := s.session(t, s.a, client.SessionCreate{})
		var wg sync.WaitGroup
		wg.Go(func() { tryCall(s.a, x.ID, "bash", map[string]any{"command": "sleep 3600"}) })
		time.Sleep(time.Duration(i%5) * time.Millisecond)
		if _, err := s.a.EndSession(t.Context(), x.ID, client.EndOptions{Force: true}); err != nil {
			t.Fatalf("end %d: %v", i, err)
		}
		wg.Wait()
	}
}

// E12: sessions come and go, some of them failing on the way.
func TestE12Churn(t *testing.T) {
	s := newScene(t, "")
	n := 60
	if testing.Short() {
		n = 10
	}
	var wg sync.WaitGroup
	sem := make(chan struct{}, 4)
	for i := range n {
		sem <- struct{}{}
		wg.Go(func() {
			defer func() { <-sem }()
			req := client.SessionCreate{}
			switch i % 5 {
			case 1:
				req.Worktree.Source = "/nowhere/at/all"
			case 2:
				req.Runtime = "no-such-runtime"
			case 3:
				req.Mounts = []client.Mount{{Source: "/etc", Target: "/x"}}
			}
			x, err := s.a.CreateSession(t.Context(), req)
			if i%5 >= 1 && i%5 <= 3 {
				if err == nil {
					t.Errorf("request %+v was taken", req)
				}
				return
			}
			if err != nil {
				t.Errorf("create: %v", err)
				return
			}
			if _, err := s.a.EndSession(t.Context(), x.ID, client.EndOptions{Force: true}); err != nil {
				t.Errorf("end: %v", err)
			}
		})
	}
	wg.Wait()
	garbage, err := s.admin.GC(t.Context(), client.GCRequest{DryRun: true})
	must(t, err)
	if len(garbage) != 0 {
		t.Errorf("left over: %+v", garbage)
	}
}

// N1: no way out of the network namespace.
func TestN1NoNetwork(t *testing.T) {
	s := newScene(t, "")
	port := listenLoopback(t)
	got := s.probe(t, "network", fmt.Sprint(port))
	if got["devices"] != "1" {
		t.Errorf("%s network devices, want lo alone", got["devices"])
	}
	for n := range got {
		if n != "devices" && got[n] == "ok" {
			t.Errorf("%s worked", n)
		}
	}
	if !dialLoopback(port) {
		t.Error("control: the host's own port does not answer the host")
	}
}
