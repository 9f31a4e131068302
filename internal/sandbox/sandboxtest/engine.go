package sandboxtest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/toold/toold/internal/testrig"
)

// Engine is a private Docker Engine, with EngineImage. What tests have lies in its directory and in
// its cgroup: scripts/engine removes both, also when the tests are killed.
type Engine struct {
	Dir string // absolute
}

// EngineImage is an image of this host's programs.
const EngineImage = "toold-test:host"

// StartEngine starts an Engine in a directory that is made. It ends with this process, or with Stop;
// flags are those of dockerd. Where there is an error, what is there of the Engine is given too.
func StartEngine(flags ...string) (*Engine, error) {
	e := &Engine{Dir: "/tmp/toold-test-docker-" + RandomHex(8)}
	if err := e.Script("start", flags...); err != nil {
		return e, err
	}
	return e, e.ImportImage()
}

// Stop ends the Engine and removes what it has; nil has nothing.
func (e *Engine) Stop() error {
	if e == nil {
		return nil
	}
	return e.Script("stop")
}

// Script runs scripts/engine on the Engine: "halt", "restart" …
func (e *Engine) Script(do string, flags ...string) error {
	top, err := testrig.Top()
	if err != nil {
		return err
	}
	out, err := exec.Command(filepath.Join(top, "scripts/engine"), append([]string{do, e.Dir}, flags...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("scripts/engine %s: %w\n%s", do, err, out)
	}
	return nil
}

// Cgroup is that of the Engine, which goes with it; "/" is the root of each hierarchy.
func (e *Engine) Cgroup() (string, error) {
	name, err := os.ReadFile(filepath.Join(e.Dir, "group"))
	return "/" + strings.TrimSpace(string(name)), err
}

// Socket is where the Engine listens.
func (e *Engine) Socket() string { return filepath.Join(e.Dir, "docker.sock") }

// Host is the Engine as DOCKER_HOST has it.
func (e *Engine) Host() string { return "unix://" + e.Socket() }

// ImportImage makes EngineImage.
func (e *Engine) ImportImage() error {
	r, w := io.Pipe()
	go func() {
		w.CloseWithError(HostImage(w, nil, "sh", "bash", "awk", "cat", "chmod", "cp", "cut", "dd", "diff", "echo", "env", "false", "find", "git", "grep",
			"head", "id", "kill", "ln", "ls", "mkdir", "mkfifo", "mv", "nohup", "nproc", "printf", "ps", "readlink", "rm", "rmdir", "sed", "seq", "setsid",
			"sleep", "sort", "stat", "sync", "tail", "tee", "test", "timeout", "touch", "tr", "true", "uname", "uniq", "wc", "xargs", "yes", "date", "python3"))
	}()
	defer r.Close()
	repo, tag, _ := strings.Cut(EngineImage, ":")
	return e.API(http.MethodPost, "/images/create?fromSrc=-&repo="+repo+"&tag="+tag, r)
}

// API makes a request of the Engine behind a driver's back.
func (e *Engine) API(method, path string, body io.Reader) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, body)
	if err != nil {
		return err
	}
	if method == http.MethodPost && !strings.HasPrefix(path, "/images/") {
		req.Header.Set("Content-Type", "application/json")
	}
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", e.Socket())
	}}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil || resp.StatusCode >= 400 || strings.Contains(string(answer), `"error"`) {
		return fmt.Errorf("%s %s: %s %s %w", method, path, resp.Status, answer, err)
	}
	return nil
}
