package network

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// TestNpmIsAsked: an install of something denied ends with one line that names rule and host,
// and after a yes in "toolctl approvals watch" it goes on.
func TestNpmIsAsked(t *testing.T) {
	r := newRig(t, runc)
	work := r.workDir()
	r.site(work)
	s := r.session(client.SessionCreate{Worktree: client.Worktree{Source: work, Mode: client.WorktreeBind}})
	if got := r.bash(s, "command -v npm"); got.IsError {
		testrig.Skipf(t, "clients", "no npm in the session: run scripts/install-clients")
	}
	// npm's question about its own new versions has another host in this test alone, and it waits
	// for ten seconds before it tries again.
	install := func(host string) string {
		return "cd $(mktemp -d) && npm install --no-update-notifier --fetch-retry-mintimeout 1 --fetch-retry-maxtimeout 1 --cafile /workspace/ca.pem --registry https://" + host + "/npm/ left && cat node_modules/left/index.js"
	}
	oneLine := func(got *client.Call, want string) {
		t.Helper()
		lines := strings.Split(strings.TrimSpace(got.Output), "\n")
		if !got.IsError || lines[len(lines)-1] != want || strings.Count(got.Output, "network: ") != 1 {
			t.Errorf("the last line is not %q, or not the only one of the network:\n%s", want, got.Output)
		}
	}
	oneLine(r.bash(s, install("denied.example")), `network: denied.example:443 was denied by default (network "*")`)
	w := r.watch()
	no := r.calling(s, install("asked.example"))
	w.press("asked.example:443", "r")
	rule := "config.toml:" + lineOf(t, filepath.Join(r.dir, "config.toml"), `"asked.example" = "ask"`)
	if got := <-no; got == nil || !strings.Contains(got.Output, rule) {
		t.Errorf("a rejected install does not name %s: %+v", rule, got)
	} else {
		lines := strings.Split(strings.TrimSpace(got.Output), "\n")
		oneLine(got, lines[len(lines)-1])
	}
	yes := r.calling(s, install("asked.example"))
	w.press("asked.example:443", "o")
	if got := <-yes; got == nil || got.IsError || !strings.Contains(got.Output, "module.exports = 'left'") || strings.Contains(got.Output, "network: ") {
		t.Errorf("after the yes: %+v", got)
	}
	if n := r.reached.Load(); n != 0 {
		t.Errorf("%d connections reached an address that no rule allows", n)
	}
}

// calling makes a call and gives its end, nil for none.
func (r *rig) calling(session, command string) <-chan *client.Call {
	done := make(chan *client.Call, 1)
	go func() {
		c, err := r.try(session, command)
		if err != nil {
			c = nil
		}
		done <- c
	}()
	return done
}

// lineOf is the number of the line of a file that is this.
func lineOf(t *testing.T, file, line string) string {
	t.Helper()
	out, err := exec.Command("grep", "-nxF", line, file).Output()
	must(t, err)
	n, _, _ := strings.Cut(string(out), ":")
	return n
}

// watching is "toolctl approvals watch" on a terminal.
type watching struct {
	r    *rig
	keys *os.File

	mu    sync.Mutex // guards what it has shown since the last press
	shown bytes.Buffer
}

func (r *rig) watch() *watching {
	r.t.Helper()
	master, path, err := testrig.Terminal()
	must(r.t, err)
	must(r.t, unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 100, Row: 40}))
	tty, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	must(r.t, err)
	cmd := exec.Command(filepath.Join(built.dir, "toolctl"), "--socket", testrig.Socket(r.dir), "approvals", "watch")
	cmd.Env = []string{"TERM=xterm", "HOME=" + r.dir}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(r.t, cmd.Start())
	_ = tty.Close()
	w := &watching{r: r, keys: master}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			w.mu.Lock()
			w.shown.Write(buf[:n])
			w.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	r.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		<-done
		_ = master.Close()
	})
	return w
}

// press answers with a key once the terminal has shown what is asked about. A key that comes
// before the whole question was there counts for nothing, so it is pressed until it was taken.
func (w *watching) press(after, key string) {
	w.r.t.Helper()
	testrig.Eventually(w.r.t, "the terminal shows "+after, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return bytes.Contains(w.shown.Bytes(), []byte(after))
	})
	testrig.Eventually(w.r.t, "the key "+key+" answers", func() bool {
		_, err := w.keys.WriteString(key)
		must(w.r.t, err)
		list, err := w.r.client.ListApprovals(context.Background(), client.ApprovalQuery{})
		return err == nil && len(list.Items) == 0
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shown.Reset()
}
