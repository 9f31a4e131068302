package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/toold/toold/internal/sandbox/sandboxtest"
)

// testImage is what the sessions of the docker tier are made of.
const testImage = "toold-attack:host"

// dockerSandbox imports an image into the Engine.
func dockerSandbox(*tier, string) (string, error) {
	r, w := io.Pipe()
	go func() { w.CloseWithError(hostImage(w)) }()
	defer r.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	repo, tag, _ := strings.Cut(testImage, ":")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://engine/images/create?fromSrc=-&repo="+repo+"&tag="+tag, r)
	if err != nil {
		return "", err
	}
	if answer, err := engine(req); err != nil || strings.Contains(string(answer), `"error"`) {
		return "", fmt.Errorf("import the image of the sessions: %s %w", answer, err)
	}
	return fmt.Sprintf("driver = \"docker\"\nrootfs = %q\n", testImage), nil
}

// engine makes a request of the private Engine. scripts/engine says where that is:
// it is never one that does something else.
func engine(req *http.Request) ([]byte, error) {
	socket, ok := strings.CutPrefix(os.Getenv("DOCKER_HOST"), "unix://")
	if !ok {
		return nil, fmt.Errorf("scripts/engine gave no Engine: DOCKER_HOST is %q", os.Getenv("DOCKER_HOST"))
	}
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, answer)
	}
	return answer, err
}

// containerPID is the first process of a session's container.
func containerPID(session string) (int, bool) {
	req, err := http.NewRequest(http.MethodGet, "http://engine/containers/toold-"+session+"/json", nil)
	if err != nil {
		return 0, false
	}
	answer, err := engine(req)
	if err != nil {
		return 0, false
	}
	var c struct{ State struct{ Pid int } }
	err = json.Unmarshal(answer, &c)
	return c.State.Pid, err == nil && c.State.Pid > 0
}

// imagePrograms are what the attacks start.
var imagePrograms = []string{
	"bash", "sh", "awk", "cat", "chmod", "cp", "cut", "dd", "env", "find", "git", "grep", "head", "id", "ln", "ls", "mkdir", "mkfifo", "mktemp", "mv",
	"nohup", "nproc", "pgrep", "ps", "python3", "readlink", "rm", "sed", "seq", "setsid", "sleep", "sort", "stat", "tail", "tee", "timeout", "touch", "tr",
	"true", "false", "tty", "uname", "uniq", "wc", "xargs", "yes", "date", "echo", "printf", "rmdir", "sync", "who", "basename", "dirname", "od", "mknod", "curl",
}

// hostImage writes a small root filesystem of the host's own programs as a tar, with
// the library of its Python.
func hostImage(w io.Writer) error {
	library := map[string]string{} // where it is in the image → where it is here
	versions, err := filepath.Glob("/usr/lib/python3.*")
	if err != nil {
		return err
	}
	for _, dir := range versions {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			// What Python compiles meanwhile is written under a name that it goes away from.
			if err == nil && d.Type().IsRegular() && !strings.Contains(path, "/test") && !strings.Contains(path, ".pyc.") {
				library[path[1:]] = path
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return sandboxtest.HostImage(w, library, imagePrograms...)
}
