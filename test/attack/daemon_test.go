package attack

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// raw sends bytes to the daemon as they are and gives the head of the answer.
func (r *rig) raw(t *testing.T, request string) string {
	t.Helper()
	c, err := net.Dial("unix", r.socket)
	must(t, err)
	defer c.Close()
	c.SetDeadline(time.Now().Add(60 * time.Second))
	go io.WriteString(c, request)
	line, _ := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line)
}

// asUser runs curl against the daemon as another user and gives what it printed.
func (r *rig) asUser(uid uint32, path string) (string, error) {
	cmd := exec.Command("curl", "-s", "-o", "-", "-w", "\n%{http_code}", "--unix-socket", r.socket, "http://toold"+path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// D1: who may talk to the daemon.
func TestD1Peers(t *testing.T) {
	s := newScene(t, "")
	if out, err := s.asUser(44444, "/v1/version"); err == nil && !strings.HasSuffix(out, "403") {
		t.Errorf("a stranger got %q", out)
	}
	// With the socket open to all, the peer's uid decides.
	must(t, os.Chmod(filepath.Dir(s.socket), 0o755))
	must(t, os.Chmod(s.socket, 0o666))
	for _, uid := range []uint32{44444, 65534, uidBase() + 1000} {
		if out, err := s.asUser(uid, "/v1/sessions"); err != nil || !strings.HasSuffix(out, "403") {
			t.Errorf("uid %d got %q %v", uid, out, err)
		}
	}
	if out, err := s.asUser(40001, "/v1/sessions"); err != nil || !strings.HasSuffix(out, "200") {
		t.Errorf("control: a user of tenant a got %q %v", out, err)
	}
	// The socket is not in the sandbox.
	if out := s.bash(t, "find / -xdev -name 'toold.sock' 2>/dev/null; ls "+s.socket+" 2>&1").Output; !strings.Contains(out, "No such file") {
		t.Errorf("from inside: %q", out)
	}
	// Where an operator gives it in by mistake, the sandbox's users are strangers.
	must(t, os.Mkdir(filepath.Join(s.tree, "sock"), 0o755))
	x := s.attacker
	ln := filepath.Join(s.tree, "sock", "toold.sock")
	must(t, os.Link(s.socket, ln))
	out := bash(t, s.a, x.ID, "python3 -c 'import socket;s=socket.socket(socket.AF_UNIX);s.connect(\"/workspace/sock/toold.sock\");s.send(b\"GET /v1/sessions HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n\");print(s.recv(100))' 2>&1").Output
	if strings.Contains(out, "200 OK") {
		t.Errorf("the sandbox's tool user was let in: %q", out)
	}
}

// D2: another tenant's ids are answered like ids that do not exist.
func TestD2OtherTenant(t *testing.T) {
	s := newScene(t, "")
	c := bash(t, s.b, s.neighbour.ID, "echo secret")
	get := func(path, method string) string {
		body := ""
		switch {
		case method == "PATCH":
			body = `{"labels":{"a":"b"}}`
		case method == "POST" && strings.HasSuffix(path, "/calls"):
			body = `{"tool":"bash","input":{"command":"true"}}`
		}
		req, err := http.NewRequest(method, "http://toold"+path, strings.NewReader(body))
		must(t, err)
		req.Header.Set("Toold-Tenant", "a")
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		hc := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", s.socket) }}}
		defer hc.CloseIdleConnections()
		resp, err := hc.Do(req)
		must(t, err)
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return fmt.Sprintf("%d %s", resp.StatusCode, b)
	}
	for _, p := range []struct{ method, path string }{
		{"GET", "/v1/sessions/%s"},
		{"DELETE", "/v1/sessions/%s"},
		{"PATCH", "/v1/sessions/%s"},
		{"GET", "/v1/sessions/%s/calls"},
		{"POST", "/v1/sessions/%s/calls"},
		{"GET", "/v1/sessions/%s/files?path=/etc/passwd"},
	} {
		unknown := "ses_" + strings.Repeat("0", len(s.neighbour.ID)-4)
		theirs := get(fmt.Sprintf(p.path, s.neighbour.ID), p.method)
		none := get(fmt.Sprintf(p.path, unknown), p.method)
		if strings.ReplaceAll(theirs, s.neighbour.ID, "ID") != strings.ReplaceAll(none, unknown, "ID") || !strings.HasPrefix(theirs, "404") {
			t.Errorf("%s %s: theirs %q, unknown %q", p.method, p.path, theirs, none)
		}
	}
	for _, p := range []struct{ method, path string }{
		{"GET", "/v1/calls/%s"}, {"GET", "/v1/calls/%s/output"}, {"POST", "/v1/calls/%s/abort"},
	} {
		unknown := "call_" + strings.Repeat("0", len(c.ID)-5)
		theirs, none := get(fmt.Sprintf(p.path, c.ID), p.method), get(fmt.Sprintf(p.path, unknown), p.method)
		if strings.ReplaceAll(theirs, c.ID, "ID") != strings.ReplaceAll(none, unknown, "ID") || !strings.HasPrefix(theirs, "404") {
			t.Errorf("%s %s: theirs %q, unknown %q", p.method, p.path, theirs, none)
		}
	}
	if got, err := s.b.GetCall(t.Context(), c.ID); err != nil || strings.TrimSpace(got.Output) != "secret" {
		t.Errorf("control: the owner gets %v %v", got, err)
	}
}

// D3: names and ids that are not.
func TestD3Names(t *testing.T) {
	s := newScene(t, "")
	for _, name := range []string{"../x", "a/b", "%2e%2e", "x\x00y", strings.Repeat("n", 300), "-rf", ".hidden", "ünïcödé", "a b", "a\nb"} {
		if x, err := s.a.CreateSession(t.Context(), client.SessionCreate{Name: name}); err == nil {
			t.Errorf("session named %q was made", name)
			s.a.EndSession(t.Context(), x.ID, client.EndOptions{Force: true})
		}
	}
	for _, id := range []string{"../x", "a%2fb", "%2e%2e", "%00", strings.Repeat("n", 300), "-x", ".x", "%c3%bc"} {
		line := s.raw(t, "GET /v1/sessions/"+id+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if !strings.Contains(line, " 400") && !strings.Contains(line, " 404") && !strings.Contains(line, " 30") {
			t.Errorf("id %q: %s", id, line)
		}
	}
	x := s.session(t, s.a, client.SessionCreate{Name: "good-name.1"})
	s.a.EndSession(t.Context(), x.ID, client.EndOptions{Force: true})
}

// D4: what may be mounted.
func TestD4Sources(t *testing.T) {
	s := newScene(t, "")
	link := filepath.Join(s.trees, "link")
	must(t, os.Symlink("/etc", link))
	inner := filepath.Join(s.tree, "inner")
	must(t, os.Symlink("/etc", inner))
	bad := []string{
		"/", "/etc", "/proc", "/sys", "/dev", "/run", "/var", "/root", "/var/run/docker.sock", s.dir, filepath.Join(s.dir, "state"),
		filepath.Join(s.dir, "run"), link, inner, link + "/ssl", s.trees + "/../state", s.trees + "/../../../etc", "relative", "/proc/self/root" + s.tree, "/nowhere",
		s.tree + "/probe", "",
	}
	for _, src := range bad {
		for _, mode := range []client.WorktreeMode{client.WorktreeBind, client.WorktreeRO} {
			x, err := s.a.CreateSession(t.Context(), client.SessionCreate{Worktree: client.Worktree{Source: src, Mode: mode}})
			if err == nil {
				t.Errorf("worktree %q (%s) was mounted", src, mode)
				s.a.EndSession(t.Context(), x.ID, client.EndOptions{Force: true})
			}
		}
	}
	// Also an admin mounts nothing of the host's own.
	for _, src := range []string{"/", "/etc", "/proc", "/sys", "/dev", "/run", "/var/lib/toold", filepath.Join(s.dir, "state")} {
		if x, err := s.admin.CreateSession(t.Context(), client.SessionCreate{Worktree: client.Worktree{Source: src}}); err == nil {
			t.Errorf("admin mounted %q", src)
			s.admin.EndSession(t.Context(), x.ID, client.EndOptions{Force: true})
		}
	}
	// A directory that is swapped for a link while sessions are made.
	swap, other := filepath.Join(s.trees, "swap"), filepath.Join(s.trees, "other")
	must(t, os.Mkdir(swap, 0o755))
	must(t, os.Symlink("/etc", other))
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				renameExchange(swap, other)
			}
		}
	}()
	made := 0
	for range 40 {
		x, err := s.a.CreateSession(t.Context(), client.SessionCreate{Worktree: client.Worktree{Source: swap}})
		if err != nil {
			continue
		}
		made++
		if out := bash(t, s.a, x.ID, "ls /workspace").Output; strings.Contains(out, "passwd") {
			t.Error("the swapped source was mounted")
		}
		s.a.EndSession(t.Context(), x.ID, client.EndOptions{Force: true})
	}
	close(stop)
	<-done
	t.Logf("%d of 40 creations hit the directory", made)
}

// D5: requests that are too long, too slow or too deep.
func TestD5Requests(t *testing.T) {
	s := newScene(t, "")
	before := rss(s.daemon.Cmd.Process.Pid)
	head := "POST /v1/sessions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
	deep := strings.Repeat("[", 100000)
	for name, c := range map[string]struct{ request, want string }{
		"header of 1 MB":  {"GET /v1/version HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", " 431"},
		"deep JSON":       {head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(deep), deep), " 400"},
		"declared 10 GB":  {head + "Content-Length: 10000000000\r\n\r\n{", " 413"},
		"gzip":            {head + "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", " 4"},
		"two lengths":     {head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", " 400"},
		"CL and TE":       {head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", " 4"},
		"folded header":   {"GET /v1/version HTTP/1.1\r\nHost: x\r\n X: y\r\n\r\n", " 400"},
		"duplicate key":   {head + "Content-Length: 21\r\n\r\n{\"name\":\"a\",\"name\":\"b\"}"[:0] + head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", 23, `{"name":"a","name":"b"}`), " 400"},
		"unknown key":     {head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", 10, `{"nope":1}`), " 400"},
		"key in caps":     {head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", 12, `{"NAME":"a"}`), " 400"},
		"trailing data":   {head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", 4, `{}{}`), " 400"},
		"endless chunks":  {head + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("100000\r\n"+strings.Repeat(" ", 1<<20)+"\r\n", 20), " 413"},
		"from a web page": {"GET /v1/sessions HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\nConnection: close\r\n\r\n", " 403"},
		"a sane one":      {"GET /v1/version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", " 200"},
	} {
		if line := s.raw(t, c.request); !strings.Contains(line, c.want) {
			t.Errorf("%s: got %q, want%s", name, line, c.want)
		}
	}
	if grown := rss(s.daemon.Cmd.Process.Pid) - before; grown > 64<<20 {
		t.Errorf("the daemon grew by %d MiB", grown>>20)
	}
}

// D6: idle connections and streams that are never read are capped for their
// owner and cost others nothing.
func TestD6Connections(t *testing.T) {
	s := newScene(t, "")
	must(t, os.Chmod(filepath.Dir(s.socket), 0o755))
	must(t, os.Chmod(s.socket, 0o666))
	// A child with the attacker's uid holds them open.
	script := fmt.Sprintf(`
import resource, socket, time
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],)*2)
held=[]
for i in range(3000):
    s=socket.socket(socket.AF_UNIX)
    try:
        s.settimeout(2)
        s.connect(%q)
        s.send(b"GET /v1/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n")
    except OSError:
        pass
    held.append(s)
print(len(held), flush=True)
time.sleep(3600)
`, s.socket)
	cmd := exec.Command("/usr/bin/python3", "-c", script)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 40001, Gid: 40001}}
	var out lockedBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	must(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	testrig.Eventually(t, "the flood stands", func() bool { return strings.Contains(out.String(), "\n") })
	for range 5 {
		if c := bash(t, s.b, s.neighbour.ID, "echo here"); strings.TrimSpace(c.Output) != "here" {
			t.Errorf("neighbour: %q", c.Output)
		}
	}
	// One that is refused has a descriptor until it is closed.
	testrig.Eventually(t, "a cap per user: 3000 connections are not 3000 descriptors", func() bool {
		return countFDs(s.daemon.Cmd.Process.Pid) <= 1024+200
	})
}

// D7: no request hides in another one.
func TestD7Smuggling(t *testing.T) {
	s := newScene(t, "")
	hidden := "GET /v1/sessions HTTP/1.1\r\nHost: x\r\n\r\n"
	post := "POST /v1/reload HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	for name, tt := range map[string]struct {
		request string
		answers int
	}{
		// Read as chunks, which leaves the rest a request like any other of this peer's:
		// there is no second reader that could see it otherwise.
		"CL and TE":             {post + fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s", 5+len(hidden), hidden), 2},
		"two lengths":           {post + "Content-Length: 0\r\nContent-Length: 2\r\n\r\n" + hidden, 1},
		"two encodings":         {post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + hidden, 1},
		"odd encoding":          {post + "Transfer-Encoding: xchunked\r\n\r\n" + hidden, 1},
		"a space in the name":   {post + "Content-Length : 2\r\n\r\n{}" + hidden, 1},
		"bad chunk":             {post + "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n" + hidden, 1},
		"signed length":         {post + "Content-Length: +2\r\n\r\n{}" + hidden, 1},
		"control: two of a row": {"GET /v1/version HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 2},
	} {
		c, err := net.Dial("unix", s.socket)
		must(t, err)
		must(t, c.SetDeadline(time.Now().Add(time.Minute)))
		_, err = io.WriteString(c, tt.request)
		must(t, err)
		must(t, c.(*net.UnixConn).CloseWrite())
		all, _ := io.ReadAll(c) // a reset ends it too
		c.Close()
		if n := strings.Count(string(all), "HTTP/1.1 "); n != tt.answers || tt.answers == 1 && !strings.HasPrefix(string(all), "HTTP/1.1 4") && !strings.HasPrefix(string(all), "HTTP/1.1 5") {
			t.Errorf("%s: %d answers, want %d: %.300q", name, n, tt.answers, all)
		}
	}
}

// D8: what a session is given as a secret appears nowhere else.
func TestD8Secrets(t *testing.T) {
	s := newScene(t, "")
	const secret = "hunter2hunter2hunter2"
	x, err := s.a.CreateSession(t.Context(), client.SessionCreate{Env: map[string]string{"API_KEY": secret}, Token: true})
	must(t, err)
	if out := bash(t, s.a, x.ID, "echo $API_KEY").Output; strings.TrimSpace(out) != secret {
		t.Fatalf("control: the session itself reads %q", out)
	}
	for _, needle := range []string{secret, x.Token} {
		if needle == "" {
			t.Fatal("no token was given")
		}
		if strings.Contains(s.daemon.Log(), needle) {
			t.Error("it is in the log")
		}
		for _, f := range []string{"cmdline", "environ"} {
			all, _ := filepath.Glob("/proc/[0-9]*/" + f)
			for _, p := range all {
				if pid := filepath.Base(filepath.Dir(p)); f == "environ" && pid != fmt.Sprint(s.daemon.Cmd.Process.Pid) {
					continue
				}
				if strings.Contains(read(p), needle) {
					t.Errorf("it is in %s", p)
				}
			}
		}
		m, err := s.admin.Metrics(t.Context())
		must(t, err)
		if bytes.Contains(m, []byte(needle)) {
			t.Error("it is in the metrics")
		}
		got, err := s.a.GetSession(t.Context(), x.ID)
		must(t, err)
		if strings.Contains(fmt.Sprintf("%+v", got), needle) {
			t.Error("it is in the session's record")
		}
		filepath.WalkDir(s.dir, func(p string, e os.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return nil
			}
			b, _ := os.ReadFile(p)
			if bytes.Contains(b, []byte(needle)) {
				if st, err := e.Info(); err == nil && st.Mode().Perm()&0o077 != 0 {
					t.Errorf("it is in %s, mode %v", p, st.Mode())
				}
				if needle == x.Token {
					t.Errorf("the token itself is in %s", p)
				}
			}
			return nil
		})
	}
	s.a.EndSession(t.Context(), x.ID, client.EndOptions{Force: true})
}

// D12: what stands where the socket and the directories should be.
func TestD12Places(t *testing.T) {
	r := newRig(t, nil, "")
	refuses(t, r, "beside another daemon")
	if h, err := r.admin.Health(t.Context()); err != nil || h.Status != "ok" {
		t.Errorf("the first one suffered: %v %v", h, err)
	}
	r.kill(t)
	r.start(t) // a stale socket is no obstacle
	r.stop(t)
	target := filepath.Join(r.dir, "elsewhere")
	must(t, os.WriteFile(target, []byte("mine"), 0o600))
	os.Remove(r.socket)
	must(t, os.Symlink(target, r.socket))
	refuses(t, r, "over a symlink")
	if got := read(target); got != "mine" {
		t.Errorf("what the symlink leads to reads %q", got)
	}
	os.Remove(r.socket)
	must(t, os.RemoveAll(filepath.Dir(r.socket)))
	must(t, os.Mkdir(filepath.Dir(r.socket), 0o777))
	must(t, os.Chown(filepath.Dir(r.socket), 40001, 40001))
	refuses(t, r, "in a directory of another user")
	must(t, os.RemoveAll(filepath.Dir(r.socket)))
	r.start(t) // control
}

// refuses checks that a daemon does not start, and ends by itself.
func refuses(t *testing.T, r *rig, where string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, bin.toold, "--config", r.config, "--cgroup-parent", "/"+cgroupParent).CombinedOutput()
	if err == nil || ctx.Err() != nil {
		t.Errorf("it started %s: %v %s", where, err, out)
	}
}

// D14: a uid range is not given out again at once.
func TestD14RangesRest(t *testing.T) {
	s := newScene(t, "")
	seen := map[uint32]bool{}
	for range 5 {
		x := s.session(t, s.a, client.SessionCreate{})
		base, ok := sessionRange(x.ID)
		if !ok {
			t.Fatal("no range")
		}
		if seen[base] {
			t.Errorf("range %d was given out again at once", base)
		}
		seen[base] = true
		s.a.EndSession(t.Context(), x.ID, client.EndOptions{Force: true})
	}
}

// D17: the disk that holds the daemon's state is filled with inputs of calls.
func TestD17StateDisk(t *testing.T) {
	const quota, input, ended = 32 << 20, 6 << 20, 8
	t.Setenv("TOOLD_DAEMON_RECORDS", "32MiB")
	s := newScene(t, "")
	big := strings.Repeat("x", input)
	taken := func() (records, disk int64) {
		tenants, err := s.admin.Usage(t.Context())
		must(t, err)
		for _, u := range tenants {
			if u.Tenant == "a" {
				records = u.RecordBytes
			}
		}
		fi, err := os.Stat(filepath.Join(s.dir, "state", "toold.db"))
		must(t, err)
		return records, fi.Size()
	}
	// Calls that have ended make room.
	for i := range ended {
		call(t, s.a, s.attacker.ID, "write", map[string]any{"file_path": fmt.Sprintf("/workspace/%d", i%2), "content": big})
	}
	records, disk := taken()
	t.Logf("after inputs of %d MiB the records have %d MiB, the database %d MiB", ended*input>>20, records>>20, disk>>20)
	if records == 0 || records > quota || disk > quota+2*input {
		t.Errorf("the records have %d bytes, the database %d", records, disk)
	}
	// Calls that have not ended do not.
	queue := s.session(t, s.a, client.SessionCreate{Limits: client.Limits{Calls: 1}})
	start := func(tool string, in any) (*client.Call, error) {
		raw, err := json.Marshal(in)
		must(t, err)
		return s.a.CreateCall(t.Context(), queue.ID, client.CallCreate{Tool: tool, Input: raw, WaitMillis: new(int64)}, client.CallOptions{})
	}
	_, err := start("bash", map[string]any{"command": "sleep 3600", "timeout": longest.Milliseconds()})
	must(t, err)
	var queued []*client.Call
	for err == nil {
		var c *client.Call
		if c, err = start("write", map[string]any{"file_path": fmt.Sprintf("/workspace/q%d", len(queued)), "content": big}); err == nil {
			queued = append(queued, c)
		}
		if len(queued)*input > 2*quota {
			t.Fatal("there is no end of it")
		}
	}
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Code != client.CodeQuotaExceeded || len(queued) < 2 ||
		!strings.Contains(refused.Message, "tenant a") || !strings.Contains(refused.Hint, "abort some") || !strings.Contains(refused.Hint, "end a session") {
		t.Fatalf("after %d calls that wait: %v", len(queued), err)
	}
	// The neighbour has its own.
	call(t, s.b, s.neighbour.ID, "write", map[string]any{"file_path": "/workspace/big", "content": big})
	if c := bash(t, s.b, s.neighbour.ID, "wc -c < /workspace/big"); strings.TrimSpace(c.Output) != fmt.Sprint(input) {
		t.Errorf("the neighbour's file: %q", c.Output)
	}
	// What the refusal says helps.
	again := map[string]any{"file_path": "/workspace/again", "content": big}
	if _, err := tryCall(s.a, s.attacker.ID, "write", again); err == nil {
		t.Error("control: another session of the tenant takes the input")
	}
	_, err = s.a.AbortCall(t.Context(), queued[0].ID)
	must(t, err)
	call(t, s.a, s.attacker.ID, "write", again)
	_, err = s.a.EndSession(t.Context(), queue.ID, client.EndOptions{Force: true})
	must(t, err)
	old := s.session(t, s.a, client.SessionCreate{})
	call(t, s.a, old.ID, "write", again)
	_, err = s.a.EndSession(t.Context(), old.ID, client.EndOptions{})
	must(t, err)
	// An administrator sees what could go, and has it go.
	for _, flag := range []string{"--dry-run", "--records"} {
		if out, err := s.toolctl("gc", flag); err != nil || !strings.Contains(out, "records  a ") || !strings.Contains(out, "6.0MiB") {
			t.Errorf("gc %s: %v\n%s", flag, err, out)
		}
	}
}

// D17: the disk that holds the daemon's state is full. What was done can be read,
// and whoever asks whether the daemon is ready is told.
func TestD17FullStateDisk(t *testing.T) {
	s := newSceneIn(t, []string{
		"unshare", "--mount", "sh", "-c",
		`d=$(dirname "$3")/state && mkdir -m 700 "$d" && mount -t tmpfs -o size=400m,mode=700 tmpfs "$d" && exec "$@"`, "sh",
	}, "[audit]\nmode = \"lenient\"\n")
	var ids []string
	for i := range 5 {
		ids = append(ids, s.bash(t, fmt.Sprintf("echo %d", i)).ID)
	}
	name := filepath.Join(fmt.Sprintf("/proc/%d/root", s.daemon.Cmd.Process.Pid), s.dir, "state", "fill")
	fill, err := os.Create(name)
	must(t, err)
	for chunk := 1 << 20; chunk > 0; {
		if _, err := fill.Write(make([]byte, chunk)); err != nil {
			chunk /= 16
		}
	}
	must(t, fill.Close())
	h, err := s.admin.Ready(t.Context())
	must(t, err)
	if h.Status != "failing" || !strings.Contains(strings.Join(h.Reasons, "\n"), "are free on the disk of the state directory") {
		t.Errorf("ready says %+v", h)
	}
	for i := range 200 { // until there is no room for a record either
		if _, err := tryCall(s.a, s.attacker.ID, "bash", map[string]any{"command": fmt.Sprintf("echo more %d", i)}); err != nil {
			break
		}
	}
	list, err := s.a.ListCalls(t.Context(), s.attacker.ID, client.CallQuery{Limit: 5})
	if err != nil || len(list.Items) != 5 {
		t.Fatalf("the calls: %+v, %v", list, err)
	}
	for i, c := range list.Items {
		if c.ID != ids[i] || c.Status != client.CallCompleted || c.Output != fmt.Sprintf("%d\n", i) {
			t.Errorf("call %d: %+v", i, c)
		}
	}
	must(t, os.Remove(name))
	testrig.Eventually(t, "it is ready again", func() bool {
		h, err := s.admin.Ready(t.Context())
		return err == nil && h.Status == "ok"
	})
	if c := s.bash(t, "echo again"); c.Output != "again\n" {
		t.Errorf("afterwards: %+v", c)
	}
}

// D19: the audit log is removed or changed, under the running daemon or while none runs.
func TestD19AuditRemoved(t *testing.T) {
	t.Run("while none runs", auditChangedWhileNoneRuns)
	for _, mode := range []string{"strict", "lenient"} {
		t.Run(mode, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "audit.jsonl")
			s := newScene(t, fmt.Sprintf("[audit]\npath = %q\nmode = %q\n", log, mode))
			if c := s.bash(t, "echo control"); c.Error != nil {
				t.Fatalf("control: %v", c.Error)
			}
			must(t, os.Remove(log))
			c, err := tryCall(s.a, s.attacker.ID, "bash", map[string]any{"command": "echo x > ran"})
			must(t, err)
			h, err := s.admin.Ready(t.Context())
			must(t, err)
			switch {
			case mode == "strict" && (c.Error == nil || !strings.Contains(c.Error.Message, "it was removed") || read(filepath.Join(s.tree, "ran")) != ""):
				t.Errorf("a call ran without its record: %+v", c)
			case mode == "strict" && (h.Status != "failing" || !strings.Contains(strings.Join(h.Reasons, "\n"), "it was removed")):
				t.Errorf("ready says %+v", h)
			case mode == "lenient" && (c.Error != nil || h.Status != "ok"):
				t.Errorf("%+v, ready says %+v", c, h)
			}
			if s.metric(t, "toold_audit_errors_total") == 0 {
				t.Error("no metric counts it")
			}
			if out, err := s.toolctl("audit", "verify", filepath.Dir(log)); err == nil || !strings.Contains(out, "missing") {
				t.Errorf("verify: %v\n%s", err, out)
			}
			if mode == "strict" { // a restart, which keeps the sessions
				must(t, s.daemon.Terminate())
				s.start(t)
			}
			if c := s.bash(t, "echo again"); c.Error != nil || c.Output != "again\n" {
				t.Errorf("afterwards: %+v", c)
			}
		})
	}
}

func auditChangedWhileNoneRuns(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	log := filepath.Join(dir, "audit.jsonl")
	s := newScene(t, fmt.Sprintf("[audit]\npath = %q\n", log))
	for _, step := range []struct {
		name, says string
		change     func() error
	}{
		{"nothing", "", func() error { return nil }},
		{"removed", "are not here", func() error { return os.RemoveAll(dir) }},
		{"an old record", "is not what was written", func() error {
			return os.WriteFile(log, []byte(strings.Replace(read(log), `"tool":"bash"`, `"tool":"read"`, 1)), 0o600)
		}},
		{"nothing more", "is not what was written", func() error { return nil }},
	} {
		if c := s.bash(t, "echo control"); c.Error != nil {
			t.Fatalf("%s: control: %v", step.name, c.Error)
		}
		must(t, s.daemon.Kill())
		must(t, step.change())
		s.start(t)
		var h *client.Health
		testrig.Eventually(t, step.name+": the log is looked through", func() bool {
			var err error
			h, err = s.admin.Ready(t.Context())
			return err == nil && h.Status == "ok" && (step.says == "" || strings.Contains(strings.Join(h.Warnings, "\n"), step.says))
		})
		if step.says == "" && len(h.Warnings) > 0 {
			t.Errorf("%s: ready says %+v", step.name, h)
		}
		if c := s.bash(t, "echo again"); c.Error != nil || c.Output != "again\n" {
			t.Errorf("%s: afterwards: %+v", step.name, c)
		}
		if out, err := s.toolctl("audit", "verify", dir); (err != nil) != (step.says != "") {
			t.Errorf("%s: verify: %v\n%s", step.name, err, out)
		}
	}
	if n := strings.Count(read(log), `"kind":"tampered"`); n != 2 {
		t.Errorf("%d records of two changes:\n%s", n, read(log))
	}
}

// D18: two daemons are given the same host uids. None of their sessions have one in
// common, also when a daemon was killed and its sessions live on.
func TestD18TwoDaemons(t *testing.T) {
	one, two := newRig(t, nil, ""), newRig(t, nil, "")
	two.stop(t)
	line := regexp.MustCompile(`(?m)^uid_base = .*$`)
	must(t, os.WriteFile(two.config, line.ReplaceAll([]byte(read(two.config)), line.Find([]byte(read(one.config)))), 0o600))
	two.start(t)
	seen := map[uint32]string{}
	create := func(r *rig) *client.Session {
		t.Helper()
		s := r.session(t, r.a, client.SessionCreate{})
		base, ok := sessionRange(s.ID)
		if !ok {
			t.Fatal("no range")
		}
		if other := seen[base]; other != "" {
			t.Errorf("%s and %s have the range %d", other, s.ID, base)
		}
		seen[base] = s.ID
		return s
	}
	var lives *client.Session
	for range 3 {
		lives = create(one)
		create(two)
	}
	one.kill(t)
	for range 2 {
		create(two)
	}
	one.start(t)
	if out := bash(t, one.a, lives.ID, "echo here").Output; strings.TrimSpace(out) != "here" {
		t.Errorf("a session of the daemon that was killed: %q", out)
	}
	create(one)
	for _, r := range []*rig{one, two} {
		list, err := r.a.ListSessions(t.Context(), client.SessionQuery{})
		must(t, err)
		for _, s := range list.Items {
			_, err := r.a.EndSession(t.Context(), s.ID, client.EndOptions{Force: true})
			must(t, err)
		}
		if strings.Contains(r.daemon.Log(), "quarantine") {
			t.Error("a range is under quarantine: another daemon's processes are in it")
		}
	}
}
