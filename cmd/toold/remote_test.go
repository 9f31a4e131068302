package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox/sandboxtest"
	"github.com/toold/toold/internal/testrig"
)

// workOwner owns the worktrees of these tests.
const workOwner = 4711

// elsewhere is an Engine as it is seen from another host, with a place for daemons
// that use it.
type elsewhere struct {
	*place
	engine *testEngine
	far    *sandboxtest.Elsewhere
	env    []string
}

func newElsewhere(t *testing.T) *elsewhere {
	t.Helper()
	p := newPlace(t)
	e := newEngine(t)
	far := sandboxtest.NewElsewhere(t, e.dir+"/docker.sock")
	return &elsewhere{p, e, far, []string{"DOCKER_HOST=" + far.Host, "DOCKER_TLS_VERIFY=1", "DOCKER_CERT_PATH=" + far.Certs}}
}

func (e *elsewhere) daemon() *instance {
	e.t.Helper()
	file := filepath.Join(e.dir, "remote.toml")
	mustNil(e.t, os.WriteFile(file, []byte("[sandbox]\ndriver = \"docker\"\nrootfs = \"toold-test:host\"\n[permission]\nexternal_directory = \"allow\"\n"), 0o600))
	d := e.command("--config", file)
	d.cmd.Env = append(os.Environ(), e.env...)
	return d.start().ready()
}

// worktree is a repository with files of many kinds.
type worktree struct {
	t   *testing.T
	dir string
	was map[string]file
}

// file is what is at a path.
type file struct {
	is    string // "0644 text", "-> target", "0755/" for a directory
	owner [2]uint32
	ino   uint64
	mtime time.Time
}

func (e *elsewhere) worktree(t *testing.T, name string) *worktree {
	t.Helper()
	w := &worktree{t: t, dir: filepath.Join(e.dir, "work", name)}
	for name, is := range map[string]string{
		"README": "0644 first line\nsecond line\n", "gone": "0644 x", "tool": "0755 #!/bin/sh\necho tool\n", "secret": "0600 s",
		"line\nfeed": "0644 n", "caf\xe9": "0644 bytes", "link": "-> README", "dangling": "-> /nowhere/at all", "locked": "0444 l",
		"dir/deep/f": "0644 f", "empty/": "0755/", "private/": "0700/", "private/f": "0640 f", "both": "0644 base\n", "here": "0644 base\n", "there": "0644 base\n",
	} {
		w.put(name, is)
	}
	w.git("init", "-q")
	w.git("add", "-A")
	w.git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "-m", "first")
	mustNil(t, filepath.WalkDir(w.dir, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(p, workOwner, workOwner)
	}))
	// Old enough to be told from what is written now.
	old := time.Unix(1_600_000_000, 123_456_789)
	for _, name := range []string{"README", "tool", "locked", "line\nfeed", "dir/deep/f", "dir/deep", "dir", "empty", "private"} {
		mustNil(t, os.Chtimes(filepath.Join(w.dir, name), old, old))
	}
	w.was = w.look()
	return w
}

// put makes what is says, in the form of file.is.
func (w *worktree) put(name, is string) {
	w.t.Helper()
	full := filepath.Join(w.dir, name)
	mustNil(w.t, os.MkdirAll(filepath.Dir(full), 0o755))
	if to, ok := strings.CutPrefix(is, "-> "); ok {
		mustNil(w.t, os.Symlink(to, full))
		return
	}
	var mode fs.FileMode
	_, err := fmt.Sscanf(is[:4], "%o", &mode)
	mustNil(w.t, err)
	if is[4:] == "/" {
		mustNil(w.t, os.MkdirAll(full, mode))
	} else {
		mustNil(w.t, os.WriteFile(full, []byte(is[5:]), mode))
	}
	mustNil(w.t, os.Chmod(full, mode))
}

// git runs it on the host, where the repository is the test's own.
func (w *worktree) git(args ...string) string {
	w.t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "safe.directory=*", "-C", w.dir}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_OPTIONAL_LOCKS=0", "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("git %s: %v\n%s", args, err, out)
	}
	return string(out)
}

// look gives all that is in the worktree.
func (w *worktree) look() map[string]file {
	w.t.Helper()
	all := map[string]file{}
	mustNil(w.t, filepath.WalkDir(w.dir, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(p)
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		f := file{owner: [2]uint32{st.Uid, st.Gid}, ino: st.Ino, mtime: info.ModTime()}
		switch info.Mode().Type() {
		case fs.ModeDir:
			f.is = fmt.Sprintf("%04o/", info.Mode().Perm())
		case fs.ModeSymlink:
			to, err := os.Readlink(p)
			mustNil(w.t, err)
			f.is = "-> " + to
		case 0:
			data, err := os.ReadFile(p)
			mustNil(w.t, err)
			f.is = fmt.Sprintf("%04o %s", info.Mode().Perm(), data)
		default:
			f.is = info.Mode().String()
		}
		rel, err := filepath.Rel(w.dir, p)
		all[rel] = f
		return err
	}))
	return all
}

// check sees that the worktree is as it was but for changes, in the form of file.is;
// "" stands for what is gone. Below what is in except, anything may be.
func (w *worktree) check(changes map[string]string, except ...string) {
	w.t.Helper()
	now := w.look()
	all, touched := maps.Clone(w.was), map[string]bool{}
	maps.Copy(all, now)
	for name := range changes {
		all[name], touched[filepath.Dir(name)] = file{}, true
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if slices.ContainsFunc(except, func(e string) bool { return name == e || strings.HasPrefix(name, e+"/") }) {
			continue
		}
		got, want := now[name], w.was[name]
		if is, ok := changes[name]; ok {
			if got.is != is || is != "" && got.owner != [2]uint32{workOwner, workOwner} {
				w.t.Errorf("%q: got %q of %v, want %q", name, got.is, got.owner, is)
			}
			continue
		}
		if touched[name] {
			got.mtime = want.mtime
		}
		if got != want {
			w.t.Errorf("%q is not to be touched: got %+v, want %+v", name, got, want)
		}
	}
}

// session makes one that works on a worktree.
func (i *instance) session(w *worktree) *client.Session {
	w.t.Helper()
	s, err := i.client().CreateSession(w.t.Context(), client.SessionCreate{Worktree: client.Worktree{Source: w.dir}})
	mustNil(w.t, err)
	return s
}

// call runs a tool to its end.
func (i *instance) call(t *testing.T, s *client.Session, tool string, input map[string]any) *client.Call {
	t.Helper()
	in, err := json.Marshal(input)
	mustNil(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := i.client().CreateCall(ctx, s.ID, client.CallCreate{Tool: tool, Input: in}, client.CallOptions{})
	mustNil(t, err)
	if c.Status != client.CallCompleted || c.IsError {
		t.Fatalf("%s %s: %+v %q %v", tool, in, c.Status, c.Output, c.Error)
	}
	return c
}

func (i *instance) bash(t *testing.T, s *client.Session, command string) *client.Call {
	t.Helper()
	return i.call(t, s, "bash", map[string]any{"command": command})
}

// begin starts a command that waits for release, when it has printed "before".
func (i *instance) begin(t *testing.T, s *client.Session) *client.Call {
	t.Helper()
	c, err := i.client().CreateCall(t.Context(), s.ID, client.CallCreate{
		Tool:  "bash",
		Input: json.RawMessage(`{"command":"echo before; until test -e /tmp/go; do sleep 0.05; done; echo after; echo call > call; exit 3"}`), WaitMillis: new(int64),
	}, client.CallOptions{})
	mustNil(t, err)
	testrig.Eventually(t, "the call has printed", func() bool { return strings.Contains(i.output(t, c.ID), "before") })
	return c
}

func (i *instance) release(t *testing.T, s *client.Session) {
	t.Helper()
	i.bash(t, s, "touch /tmp/go")
}

func (i *instance) output(t *testing.T, call string) string {
	t.Helper()
	out, err := i.client().CallOutput(t.Context(), call, client.OutputQuery{})
	if err != nil {
		return ""
	}
	defer out.Close()
	text, err := io.ReadAll(out)
	if err != nil {
		return ""
	}
	return string(text)
}

// finished waits for a call's end.
func (i *instance) finished(t *testing.T, id string) (c *client.Call) {
	t.Helper()
	testrig.Eventually(t, "the call has ended", func() bool {
		var err error
		c, err = i.client().GetCall(t.Context(), id)
		mustNil(t, err)
		return c.Finished()
	})
	return c
}

func (i *instance) endSession(t *testing.T, s *client.Session) *client.Session {
	t.Helper()
	s, err := i.client().EndSession(t.Context(), s.ID, client.EndOptions{})
	mustNil(t, err)
	return s
}

// work changes files of a worktree as an agent does, in a session; done is what is
// changed then.
func (i *instance) work(w *worktree) {
	w.t.Helper()
	s := i.session(w)
	if s.Worktree.IDMap != "copied" {
		w.t.Errorf("the worktree is %q", s.Worktree.IDMap)
	}
	c := i.bash(w.t, s, `set -e; cat $'line\nfeed' $'caf\xe9'; ./tool; readlink dangling; GIT_OPTIONAL_LOCKS=0 git status --porcelain
		echo made > made; rm gone; chmod 0700 secret; mkdir -p new/deep; echo in > new/deep/f; ln -s ../README new/up; touch README; printf '' > $'a\nb'`)
	if want := "nbytestool\n/nowhere/at all\n"; c.Output != want {
		w.t.Errorf("got %q, want %q", c.Output, want)
	}
	i.call(w.t, s, "read", map[string]any{"file_path": "README"})
	i.call(w.t, s, "edit", map[string]any{"file_path": "README", "old_string": "second", "new_string": "another"})
	w.check(nil)
	w.quiet(s, i.endSession(w.t, s))
	w.check(map[string]string{
		"README": "0644 first line\nanother line\n", "made": "0644 made\n", "gone": "", "secret": "0700 s", "new": "0755/", "new/deep": "0755/",
		"new/deep/f": "0644 in\n", "new/up": "-> ../README", "a\nb": "0644 ",
	})
}

// quiet sees that a session's end added nothing to its notes.
func (w *worktree) quiet(before, after *client.Session) {
	w.t.Helper()
	if after.State != client.SessionEnded || !slices.Equal(after.Notes, before.Notes) {
		w.t.Errorf("ended as %s, with notes %q after %q", after.State, after.Notes, before.Notes)
	}
}

// ctl is toolctl with the daemon's socket.
func (i *instance) ctl(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(i.bin, "toolctl"), append([]string{"--socket", i.socket}, args...)...)
	cmd.Env = i.cmd.Env
	return cmd
}

// A worktree that goes to an Engine elsewhere comes back with what was changed, and
// nothing else of it is touched.
func TestRemoteEngine(t *testing.T) {
	e := newElsewhere(t)
	d := e.daemon()
	t.Run("Session", func(t *testing.T) { d.work(e.worktree(t, "session")) })
	t.Run("Run", func(t *testing.T) { e.testRun(t, d) })
	t.Run("Conflict", func(t *testing.T) { e.testConflict(t, d) })
	t.Run("Killed", func(t *testing.T) { d = e.testKilled(t, d) })
	t.Run("Moment", func(t *testing.T) { e.testMoment(t, d) })
	t.Run("Gone", func(t *testing.T) { d = e.testGone(t, d) })
	t.Run("Restarted", func(t *testing.T) { e.testRestarted(t, d) })
	t.Run("SSH", func(t *testing.T) {
		d.end(syscall.SIGTERM)
		bin := sandboxtest.SSH(t, filepath.Join(e.bin, "toolagent"), e.engine.dir+"/docker.sock")
		e.env = []string{"DOCKER_HOST=ssh://builder@engine.test", "PATH=" + bin + ":" + os.Getenv("PATH")}
		d = e.daemon()
		d.work(e.worktree(t, "ssh"))
	})
	d.end(syscall.SIGTERM)
}

// toolctl run shows what the command prints while it runs, and the changes are there
// when it is over.
func (e *elsewhere) testRun(t *testing.T, d *instance) {
	w := e.worktree(t, "run")
	cmd := d.ctl(t.Context(), "run", "--worktree", w.dir, "--", "bash", "-c",
		`echo before; until test -e /tmp/go; do sleep 0.05; done; echo changed >> README; git -c user.name=t -c user.email=t@example.org commit -qam second; echo after; echo "to err" >&2; exit 7`)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	mustNil(t, err)
	mustNil(t, cmd.Start())
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	if first != "before\n" {
		t.Errorf("got %q, %v", first, err)
	}
	list, err := d.client().ListSessions(t.Context(), client.SessionQuery{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	d.release(t, &list.Items[0])
	rest, err := io.ReadAll(lines)
	mustNil(t, err)
	_ = cmd.Wait() // its code is looked at
	if code := cmd.ProcessState.ExitCode(); code != 7 || string(rest) != "after\n" || !strings.Contains(said.String(), "to err\n") {
		t.Errorf("exit code %d, output %q, and on standard error %q", code, rest, said.String())
	}
	w.check(map[string]string{"README": "0644 first line\nsecond line\nchanged\n"}, ".git")
	if log, status := w.git("log", "--format=%s"), w.git("status", "--porcelain"); log != "second\nfirst\n" || status != "" {
		t.Errorf("git has the log %q and the status %q", log, status)
	}
	w.git("fsck", "--strict")
}

// What is changed on both sides stays as it is here, and whoever ends the session is
// told.
func (e *elsewhere) testConflict(t *testing.T, d *instance) {
	w := e.worktree(t, "conflict")
	s := d.session(w)
	d.bash(t, s, `echo theirs > both; echo theirs > there; rm here; rm -r dir; echo theirs > added; mkfifo pipe`)
	w.put("both", "0644 ours\n")
	w.put("here", "0644 ours\n")
	w.put("dir/deep/f", "0644 ours\n")
	w.put("added", "0600 ours\n")
	w.put("mine", "0644 mine\n")
	now := w.look()
	ended := d.endSession(t, s)
	for name, f := range w.look() {
		if f.is != now[name].is && name != "there" {
			t.Errorf("%q: got %q, was %q", name, f.is, now[name].is)
		}
	}
	if got := w.look()["there"].is; got != "0644 theirs\n" {
		t.Errorf("what was changed there alone is %q", got)
	}
	said := strings.Join(ended.Notes[min(len(s.Notes), len(ended.Notes)):], "\n")
	for _, part := range []string{`"both"`, `"here"`, `"dir/deep/f"`, `"added"`, "pipe", "docker-remote/changes/" + s.ID + ".tar"} {
		if !strings.Contains(said, part) {
			t.Errorf("the session's last notes do not have %q: %q", part, said)
		}
	}
	kept := filepath.Join(e.dir, "state/docker/docker-remote/changes", s.ID+".tar")
	out, err := exec.Command("tar", "-xOf", kept, "workspace/both", "workspace/added").CombinedOutput()
	if err != nil || string(out) != "theirs\ntheirs\n" {
		t.Errorf("what is kept has %q, %v", out, err)
	}
}

// A call outlives a daemon that is killed, and so does the way back of its changes.
func (e *elsewhere) testKilled(t *testing.T, d *instance) *instance {
	w := e.worktree(t, "killed")
	s := d.session(w)
	c := d.begin(t, s)
	d.end(syscall.SIGKILL)
	d = e.daemon()
	d.release(t, s)
	if c = d.finished(t, c.ID); c.Output != "before\nafter\nexit code 3" || fmt.Sprint(c.Metadata["exit_code"]) != "3" {
		t.Errorf("the call ended with %v, %q, %v", c.Metadata, c.Output, c.Error)
	}
	w.quiet(s, d.endSession(t, s))
	w.check(map[string]string{"call": "0644 call\n"})
	return d
}

// A call outlives a network that is away for a moment.
func (e *elsewhere) testMoment(t *testing.T, d *instance) {
	w := e.worktree(t, "moment")
	s := d.session(w)
	c := d.begin(t, s)
	e.far.Away(true)
	e.far.Away(false)
	testrig.Eventually(t, "the daemon is connected again", func() bool {
		return strings.Contains(d.log.String(), `msg="connected to the agent again" session=`+s.ID)
	})
	d.release(t, s)
	if c = d.finished(t, c.ID); c.Output != "before\nafter\nexit code 3" {
		t.Errorf("the call ended with %q, %v", c.Output, c.Error)
	}
	w.quiet(s, d.endSession(t, s))
	w.check(map[string]string{"call": "0644 call\n"})
}

// An Engine that is out of reach keeps what was changed until it is back: of a session
// that is ended meanwhile, and of one that a daemon finds when it is started.
func (e *elsewhere) testGone(t *testing.T, d *instance) *instance {
	ended, lost := e.worktree(t, "ended"), e.worktree(t, "lost")
	first, second := d.session(ended), d.session(lost)
	d.bash(t, first, "echo made > made")
	c := d.begin(t, second)
	d.bash(t, second, "echo made > made")
	e.far.Away(true)
	s := d.endSession(t, first)
	if said := strings.Join(s.Notes, "\n"); !strings.Contains(said, "toolctl gc") || !strings.Contains(said, "changes of the worktree") {
		t.Errorf("an ended session says %q", s.Notes)
	}
	d.end(syscall.SIGKILL)
	d = e.daemon()
	s, err := d.client().GetSession(t.Context(), second.ID)
	mustNil(t, err)
	if s.State != client.SessionLost || !strings.Contains(s.Reason, e.far.Host) || !strings.Contains(strings.Join(s.Notes, "\n"), "changes of the worktree") {
		t.Errorf("a session whose Engine is gone is %s for %q, with notes %q", s.State, s.Reason, s.Notes)
	}
	if c = d.finished(t, c.ID); c.Error == nil || c.Error.Code != client.CodeSessionLost {
		t.Errorf("its call ended with %+v", c.Error)
	}
	_, err = d.client().CreateSession(t.Context(), client.SessionCreate{})
	if err == nil {
		t.Error("a session was made at an Engine that is gone")
	}
	ended.check(nil)
	lost.check(nil)
	e.far.Away(false)
	d.collect(t)
	ended.check(map[string]string{"made": "0644 made\n"})
	lost.check(map[string]string{"made": "0644 made\n"})
	return d
}

// collect has what is left at the Engine brought back.
func (i *instance) collect(t *testing.T) {
	t.Helper()
	if out, err := i.ctl(t.Context(), "gc").CombinedOutput(); err != nil {
		t.Errorf("gc: %v\n%s", err, out)
	}
}

// An Engine that is restarted ends its containers; what they changed comes back.
func (e *elsewhere) testRestarted(t *testing.T, d *instance) {
	w := e.worktree(t, "restarted")
	s := d.session(w)
	d.bash(t, s, "echo made > made")
	if out, err := exec.Command("../../scripts/engine", "restart", e.engine.dir).CombinedOutput(); err != nil {
		t.Fatalf("restart the Engine: %v\n%s", err, out)
	}
	testrig.Eventually(t, "the session is lost", func() bool {
		var err error
		s, err = d.client().GetSession(t.Context(), s.ID)
		mustNil(t, err)
		return s.State == client.SessionLost
	})
	if strings.Contains(strings.Join(s.Notes, "\n"), "toolctl gc") { // it was on its way down by then
		d.collect(t)
	}
	w.check(map[string]string{"made": "0644 made\n"})
}
