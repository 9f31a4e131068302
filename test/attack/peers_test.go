package attack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
)

// peer is a user of the host.
type peer syscall.Credential

func newPeer(uid uint32, groups ...uint32) *peer {
	return &peer{Uid: uid, Gid: uid, Groups: groups}
}

// command is a program that the peer runs, outside any sandbox.
func (p *peer) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: (*syscall.Credential)(p)}
	return cmd
}

// asks sends the daemon a request of the peer's own process, reads the answer into out
// and gives its status.
func (r *rig) asks(t *testing.T, p *peer, method, path string, body, out any) int {
	t.Helper()
	args := []string{"-s", "--unix-socket", r.socket, "-X", method, "-w", "\n%{http_code}", "http://toold" + path}
	if body != nil {
		b, err := json.Marshal(body)
		must(t, err)
		args = append(args, "-H", "Content-Type: application/json", "--data-binary", string(b))
	}
	answer, err := p.command("curl", args...).Output()
	must(t, err)
	i := bytes.LastIndexByte(answer, '\n')
	status, err := strconv.Atoi(string(answer[i+1:]))
	must(t, err)
	if out != nil {
		must(t, json.Unmarshal(answer[:i], out))
	}
	return status
}

// reach is a script that says what of the files below a directory it can read (r) and
// write (w).
const reach = `cd "$1" 2>/dev/null && ls >/dev/null 2>&1 || exit 7
find . 2>/dev/null | LC_ALL=C sort | while read -r p; do
	if [ -d "$p" ]; then
		mkdir "$p/.probe" 2>/dev/null && rmdir "$p/.probe" && echo "w $p"
	else
		cat "$p" >/dev/null 2>&1 && echo "r $p"
		(: >>"$p") 2>/dev/null && echo "w $p"
	fi
done; true`

// outside is what the peer reaches without a daemon. ok is false for a directory that
// it cannot even list.
func (p *peer) outside(t *testing.T, dir string) (lines []string, ok bool) {
	t.Helper()
	cmd := p.command("/bin/sh", "-c", reach, "sh", dir)
	out, err := cmd.Output()
	if cmd.ProcessState.ExitCode() == 7 {
		return nil, false
	}
	must(t, err)
	return strings.Fields(strings.ReplaceAll(string(out), " ", "")), true
}

// owns says whether a directory is the peer's and of its first group.
func (p *peer) owns(t *testing.T, dir string) bool {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Stat(dir, &st))
	return st.Uid == p.Uid && st.Gid == p.Gid
}

// inside is what it reaches in a session of its own.
func (r *rig) inside(t *testing.T, p *peer, session, dir string) []string {
	t.Helper()
	var c client.Call
	body := map[string]any{"tool": "bash", "input": map[string]any{"command": "sh -c '" + reach + "' sh " + dir}}
	if status := r.asks(t, p, "POST", "/v1/sessions/"+session+"/calls", body, &c); status != 200 || c.Error != nil {
		t.Fatalf("call: %d %v", status, c.Error)
	}
	return strings.Fields(strings.ReplaceAll(c.Output, " ", ""))
}

// only gives the lines of a kind.
func only(kind string, lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !strings.HasPrefix(l, kind) })
}

// F14: a peer asks for directories below a shared root that it could not open itself:
// of root, of another tenant, behind them, by links, dots and exchanged names, as
// worktree and as mount. It reaches in a session what its own process reaches outside.
func TestF14SourcesOfOthers(t *testing.T) {
	r := newRig(t, nil, "")
	must(t, os.Chmod(filepath.Dir(r.socket), 0o755))
	must(t, os.Chmod(r.socket, 0o666))
	const team = 40010
	a, b := newPeer(40001, team), newPeer(40002)
	at := func(name string) string { return filepath.Join(r.trees, name) }
	for _, d := range []struct {
		name     string
		uid, gid int
		mode     uint32
	}{
		{"a", 40001, 40001, 0o700},
		{"a/sub", 40001, 40001, 0o755},
		{"a/theirs", 40002, 40002, 0o700},
		{"b", 40002, 40002, 0o700},
		{"b/open", 40002, 40002, 0o777},
		{"b-shown", 40002, 40002, 0o755},
		{"root", 0, 0, 0o700},
		{"root/open", 0, 0, 0o777},
		{"pass", 0, 0, 0o711},
		{"pass/a", 40001, 40001, 0o700},
		{"shown", 0, 0, 0o755},
		{"all", 0, 0, 0o1777},
		{"all/root", 0, 0, 0o700},
		{"team", 0, team, 0o2770},
		{"foreign", 40001, 0, 0o750},
	} {
		must(t, os.Mkdir(at(d.name), 0o700))
		must(t, os.Chown(at(d.name), d.uid, d.gid))
		must(t, unix.Chmod(at(d.name), d.mode))
		for _, f := range []struct {
			name     string
			uid, gid int
			mode     os.FileMode
		}{
			{"a-only", 40001, 40001, 0o600},
			{"b-only", 40002, 40002, 0o600},
			{"root-only", 0, 0, 0o600},
			{"root-group", 0, 0, 0o060},
			{"team", 0, team, 0o660},
			{"everyone", 0, 0, 0o644},
		} {
			name := filepath.Join(at(d.name), f.name)
			must(t, os.WriteFile(name, []byte("secret"), 0o600))
			must(t, os.Chown(name, f.uid, f.gid))
			must(t, os.Chmod(name, f.mode))
		}
	}
	must(t, os.Symlink(at("b/open"), at("a/link")))
	must(t, os.Symlink("a", at("to-a")))

	type problem struct{ Code, Detail, Hint string }
	create := func(p *peer, req client.SessionCreate) (id string, no problem) {
		t.Helper()
		req.Profile = "wall"
		var answer struct {
			ID string
			problem
		}
		r.asks(t, p, "POST", "/v1/sessions", req, &answer)
		return answer.ID, answer.problem
	}
	end := func(p *peer, id string) {
		t.Helper()
		if status := r.asks(t, p, "DELETE", "/v1/sessions/"+id+"?force=true", nil, nil); status != 200 {
			t.Errorf("end: %d", status)
		}
	}
	for who, p := range map[string]*peer{"a": a, "b": b} {
		for _, name := range []string{"a", "a/sub", "a/theirs", "b", "b/open", "b-shown", "root", "root/open", "pass", "pass/a", "shown", "all", "all/root", "team", "foreign"} {
			check := "shared"
			if p.owns(t, at(name)) {
				check = "own"
			}
			for _, mode := range []client.WorktreeMode{client.WorktreeBind, client.WorktreeRO} {
				may, listed := p.outside(t, at(name))
				what := fmt.Sprintf("%s asks for %s (%s)", who, name, mode)
				want := listed && (mode == client.WorktreeRO || slices.Contains(may, "w."))
				id, no := create(p, client.SessionCreate{Worktree: client.Worktree{Source: at(name), Mode: mode}})
				switch {
				case id == "" && want:
					holds(t, check, false, "%s and is refused: %s", what, no.Detail)
				case id == "" && (no.Code != "forbidden" || no.Hint == ""):
					t.Errorf("%s and gets %+v", what, no)
				case id == "" && listed != strings.Contains(no.Hint, `mode "ro"`):
					t.Errorf("%s and is told %q", what, no.Hint)
				case id != "" && !want:
					t.Errorf("%s and has it: %v", what, r.inside(t, p, id, "/workspace"))
				}
				if id == "" {
					continue
				}
				if mode == client.WorktreeRO {
					may = only("r", may)
				}
				got := r.inside(t, p, id, "/workspace")
				for _, line := range got {
					if !slices.Contains(may, line) {
						t.Errorf("%s and reaches %q, which its own process does not", what, line)
					}
				}
				for _, line := range may {
					// A session has one group: the directory's, where the peer is in it.
					if strings.HasSuffix(line, "/team") && name != "team" {
						continue
					}
					holds(t, check, slices.Contains(got, line), "%s and does not reach %q", what, line)
				}
				end(p, id)
			}
		}
	}
	for _, source := range []string{at("a/link"), at("to-a"), at("to-a/sub"), r.trees + "/a/../b", r.trees + "/a/link/..", r.trees + "/b/../a"} {
		if id, no := create(a, client.SessionCreate{Worktree: client.Worktree{Source: source}}); id != "" || no.Code != "invalid_path" {
			t.Errorf("%s: %q %+v", source, id, no)
		}
	}

	// Mounts are judged like worktrees.
	for name, may := range map[string]bool{"b": false, "root": false, "root/open": false, "all": true, "pass/a": true} {
		id, no := create(a, client.SessionCreate{Mounts: []client.Mount{{Source: at(name), Target: "/cache"}}})
		if (id != "") != may {
			t.Errorf("a mounts %s: %q %+v", name, id, no)
		}
		if id != "" {
			outside, _ := a.outside(t, at(name))
			for _, line := range r.inside(t, a, id, "/cache") {
				if !slices.Contains(only("r", outside), line) {
					t.Errorf("a mounts %s and reaches %q", name, line)
				}
			}
			end(a, id)
		}
	}

	// Names are exchanged while sessions are made.
	must(t, os.Chmod(at("b/open/b-only"), 0o644))
	must(t, os.Remove(at("a/sub/b-only")))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				renameExchange(at("a"), at("b"))
			}
		}
	}()
	for range 10 {
		for _, name := range []string{"a/open", "b/open", "a/sub", "b/sub"} {
			if id, _ := create(a, client.SessionCreate{Worktree: client.Worktree{Source: at(name), Mode: client.WorktreeRO}}); id != "" {
				if got := r.inside(t, a, id, "/workspace"); slices.Contains(got, "r./b-only") {
					t.Errorf("%s was exchanged and is read: %v", name, got)
				}
				end(a, id)
			}
		}
	}
	close(stop)
	<-done

	// What a session has, it has from its beginning: also with the next daemon, by
	// every way to a file.
	id, no := create(a, client.SessionCreate{Worktree: client.Worktree{Source: at("all")}})
	if id == "" {
		t.Fatalf("no session: %+v", no)
	}
	before := r.inside(t, a, id, "/workspace")
	r.kill(t)
	r.start(t)
	must(t, os.Chmod(filepath.Dir(r.socket), 0o755))
	must(t, os.Chmod(r.socket, 0o666))
	if after := r.inside(t, a, id, "/workspace"); !slices.Equal(before, after) {
		t.Errorf("with the next daemon it reaches %v, before %v", after, before)
	}
	for name, want := range map[string]bool{"root-only": false, "b-only": false, "root/everyone": false, "a-only": true, "everyone": true} {
		if status := r.asks(t, a, "GET", "/v1/sessions/"+id+"/files?path=/workspace/"+name, nil, nil); (status == 200) != want {
			t.Errorf("download of %s: %d", name, status)
		}
	}
	end(a, id)

	// Control: an admin has all of them, with their owners' rights.
	for name, file := range map[string]string{"root": "root-only", "b-shown": "b-only"} {
		s := r.session(t, r.admin, client.SessionCreate{Worktree: client.Worktree{Source: at(name)}})
		if out := bash(t, r.admin, s.ID, "cat "+file).Output; strings.TrimSpace(out) != "secret" {
			t.Errorf("control: the admin reads %q in %s", out, name)
		}
		r.admin.EndSession(t.Context(), s.ID, client.EndOptions{Force: true})
	}
}
