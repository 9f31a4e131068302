package sandboxtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/process"
	"github.com/toold/toold/internal/testrig"
)

// refused checks that a spec makes no sandbox and leaves nothing.
func (s *suite) refused(spec sandbox.Spec, want error, why string) {
	s.Helper()
	sb, err := s.Driver.Create(s.ctx(), spec)
	if err == nil {
		sb.Close()
		s.Errorf("%s: a sandbox was made", why)
		testrig.Must(s, s.Driver.Destroy(s.ctx(), sb.Record()))
		return
	}
	if want != nil && !errors.Is(err, want) {
		s.Errorf("%s: %v, want %v", why, err, want)
	}
	if left := s.names(spec.Owner); slices.Contains(left, spec.SessionID) {
		s.Errorf("%s: something is left", why)
	}
}

// A target inside the worktree that is a link, a file or missing is refused.
func testMountTargets(s *suite) {
	src, cache := s.dir(owner), s.dir(owner)
	testrig.Must(s, os.Symlink("/etc", filepath.Join(src.Name(), "link")))
	testrig.Must(s, os.Mkdir(filepath.Join(src.Name(), "real"), 0o755))
	testrig.Must(s, os.Symlink("real", filepath.Join(src.Name(), "inner")))
	s.write(src.Name()+"/file", "", owner, 0o644)
	for _, target := range []string{
		"/workspace/link", "/workspace/link/ssl", "/workspace/inner", "/workspace/file", "/workspace/missing",
		"/", "/etc", "/etc/x", "/proc", "/proc/self", "/sys", "/dev/shm", "/tmp", "/run", "/run/toold", "/home", sandbox.Home, sandbox.Home + "/x",
		"relative", "/a/../b", "/workspace",
	} {
		spec := s.spec()
		spec.Worktree = sandbox.Worktree{Source: src, Mode: client.WorktreeBind, Target: sandbox.Workspace, UID: owner, GID: owner}
		spec.Mounts = []sandbox.Mount{{Source: cache, Target: target}}
		s.refused(spec, sandbox.ErrMountTarget, "mount at "+target)
	}
}

func testUnsupported(s *suite) {
	spec := s.spec()
	spec.Runtime = "there-is-no-such-runtime"
	s.refused(spec, sandbox.ErrUnsupported, "unknown runtime")
	spec = s.spec()
	spec.SessionID = "../escape"
	s.refused(spec, nil, "session id with a path")
	spec = s.spec()
	spec.Limits.Memory, spec.Limits.Tmp = 64<<20, 64<<20
	s.refused(spec, nil, "tmp as large as memory")
	spec = s.spec()
	spec.Worktree.Mode = "overlay"
	s.refused(spec, nil, "unknown worktree mode")
}

func testDone(s *suite) {
	b := s.create(s.spec())
	StillAlive(s, b)
	testrig.Must(s, s.Driver.Destroy(s.ctx(), b.Record()))
	AwaitEnd(s, b)
	if _, err := b.Usage(s.ctx()); !errors.Is(err, sandbox.ErrGone) {
		s.Errorf("usage afterwards: %v, want gone", err)
	}
	ctx, cancel := context.WithTimeout(s.ctx(), waitTime)
	defer cancel()
	if c, err := b.Dial(ctx); err == nil {
		c.Close()
		s.Error("dial succeeds although it is destroyed")
	}
}

func testAdopt(s *suite) {
	b := s.create(s.spec())
	b.out("echo kept >/tmp/f")
	d := s.Reopen()
	adopted := b.adopt(d)
	again := adopted.Sandbox
	adopted.want("cat /tmp/f", "kept")
	if again.Record() != b.Record() {
		s.Errorf("record is %+v, was %+v", again.Record(), b.Record())
	}
	if !slices.Equal(again.Notes(), b.Notes()) || again.IDMap() != b.IDMap() {
		s.Error("notes or id map have changed")
	}
	for name, change := range map[string]func(*sandbox.Record){
		"incarnation": func(r *sandbox.Record) { r.Incarnation = "another" },
		"owner":       func(r *sandbox.Record) { r.Owner = "another" },
		"name":        func(r *sandbox.Record) { r.SessionID = "nobody" },
	} {
		rec := b.Record()
		change(&rec)
		if sb, err := d.Adopt(s.ctx(), rec); !errors.Is(err, sandbox.ErrGone) {
			s.Errorf("adopt by another %s: %v, want gone", name, err)
			if err == nil {
				sb.Close()
			}
		}
		// Nor does it destroy what it does not name.
		if err := d.Destroy(s.ctx(), rec); err != nil {
			s.Errorf("destroy by another %s: %v", name, err)
		}
	}
	adopted.want("cat /tmp/f", "kept")
	testrig.Must(s, d.Destroy(s.ctx(), b.Record()))
	AwaitEnd(s, again)
	if _, err := d.Adopt(s.ctx(), b.Record()); !errors.Is(err, sandbox.ErrGone) {
		s.Errorf("adopt what is destroyed: %v, want gone", err)
	}
}

// A name is free, taken, and free again.
func testNames(s *suite) {
	spec := s.spec()
	b := s.create(spec)
	if got := s.names(spec.Owner); !slices.Equal(got, []string{spec.SessionID}) {
		s.Errorf("list is %v, want %s", got, spec.SessionID)
	}
	if got := s.names("nobody"); len(got) != 0 {
		s.Errorf("list of another owner is %v", got)
	}
	second := spec
	second.Incarnation = "second"
	if sb, err := s.Driver.Create(s.ctx(), second); err == nil {
		sb.Close()
		s.Error("two sandboxes of one name")
	}
	b.want("echo unharmed", "unharmed")
	testrig.Must(s, s.Driver.Destroy(s.ctx(), b.Record()))
	if got := s.names(spec.Owner); len(got) != 0 {
		s.Errorf("list is %v after the end", got)
	}
	s.create(second).want("echo again", "again")
}

// Nothing survives, and a second time is no error.
func testDestroy(s *suite) {
	b := s.create(s.spec())
	b.run("setsid sh -c 'trap \"\" TERM INT HUP; sleep 1000' >/dev/null 2>&1 & (setsid sleep 1000 &) ; exit 0")
	for range 2 {
		testrig.Must(s, s.Driver.Destroy(s.ctx(), b.Record()))
	}
	if who := s.survivor(b.spec.UIDBase); who != "" {
		s.Errorf("%s of the session's uids is alive", who)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	spec := s.spec()
	if sb, err := s.Driver.Create(ctx, spec); err == nil {
		sb.Close()
		s.Error("created although cancelled")
		if err := s.Driver.Destroy(s.ctx(), sb.Record()); err != nil {
			s.Error(err)
		}
	}
	if got := s.names(spec.Owner); len(got) != 0 {
		s.Errorf("%v is left by a cancelled creation", got)
	}
}

// An agent that dies takes its calls along, and the driver says so.
func testAgentKilled(s *suite) {
	b := s.create(s.spec())
	x := b.start(b.request("(setsid sleep 1000 &) ; echo begun; sleep 1000"), nil)
	testrig.Eventually(s, "the call has begun", func() bool { return x.sink.taken() > 0 })
	pid := b.Record().PID
	if pid == 0 {
		s.Skip("the driver does not know the agent's process")
	}
	testrig.Must(s, syscall.Kill(pid, syscall.SIGKILL))
	for what, done := range map[string]<-chan struct{}{"sandbox": b.Done(), "call": x.done, "connection": b.conn.Done()} {
		await(s, done, "the "+what+" is not done although the agent is dead")
	}
	if !errors.Is(x.err, agent.ErrLost) {
		s.Errorf("the call ended with %v, want a lost connection", x.err)
	}
	if _, err := s.Reopen().Adopt(s.ctx(), b.Record()); !errors.Is(err, sandbox.ErrGone) {
		s.Errorf("adopt with a dead agent: %v, want gone", err)
	}
	testrig.Must(s, s.Driver.Destroy(s.ctx(), b.Record()))
	s.nothingLeft(b.spec)
}

// A sandbox is destroyed in the middle of everything.
func testDestroyBusy(s *suite) {
	b := s.create(s.spec())
	var calls []*running
	for _, script := range []string{
		"yes", "trap '' TERM INT HUP; echo begun; while :; do :; done", "echo begun; (setsid sleep 1000 &) ; kill -STOP $$",
		"echo begun; i=0; while :; do i=$((i+1)); echo $i >/tmp/f$i; done",
	} {
		x := b.start(b.request(script), &sink{each: func(int64, bool, []byte) {}})
		calls = append(calls, x)
		testrig.Eventually(s, script+" has begun", func() bool { return x.sink.taken() > 0 })
	}
	testrig.Must(s, s.Driver.Destroy(s.ctx(), b.Record()))
	for _, x := range calls {
		await(s, x.done, "a call goes on although its sandbox is destroyed")
	}
	s.nothingLeft(b.spec)
}

// survivor is a process of a range that does not end. One that is ending leaves its cgroups
// before it is shown as dead, and can do nothing any more.
func (s *suite) survivor(base uint32) (who string) {
	s.Helper()
	testrig.Soon(func() bool {
		var err error
		who, err = process.In(base)
		testrig.Must(s, err)
		return who == ""
	})
	return who
}

// Two sandboxes see nothing of each other.
func testIsolation(s *suite) {
	a, b := s.create(s.spec()), s.create(s.spec())
	a.out("echo secret >/tmp/f; echo secret >/dev/shm/f; echo secret >/workspace/f; echo secret >" + sandbox.Home + "/f")
	b.want("ls -A /tmp /dev/shm /workspace "+sandbox.Home+" | grep -c f$ || true", "0")
	if got := b.out("ls -d /proc/[0-9]*"); strings.Count(got, "\n") > 5 {
		s.Errorf("processes of others are visible:\n%s", got)
	}
	n := a.out("readlink /proc/self/ns/net")
	s.holds("network namespace", n != b.out("readlink /proc/self/ns/net"), "both are in %s", n)
}

// countIPC prints what there is of System V objects: pages of shared memory, sets of semaphores,
// message queues.
const countIPC = `perl -e 'my ($b, @all);
for ([31, 14, 2], [66, 19, 7], [71, 12, 0]) {
	my ($call, $command, $at) = @$_;
	$b = "\0" x 256;
	$call == 66 ? syscall($call, 0, 0, $command, $b) : syscall($call, 0, $command, $b);
	push @all, unpack("i", substr($b, 4 * $at, 4));
}
print "@all"'`

// makeIPC makes two of each and goes away from them.
const makeIPC = `perl -e 'for (1, 2) { shmget(0, 1<<20, 0666) // die; semget(0, 3, 0666) // die; msgget(0, 0666) // die }'`

// testIPC: System V objects go with the last program that is there; shared memory, but for gVisor,
// with its own.
func testIPC(s *suite) {
	b := s.create(s.spec())
	forced := b.run("grep -qx 1 /proc/sys/kernel/shm_rmid_forced").Code == 0
	s.holds("shm_rmid_forced", forced || b.run("test -e /proc/sys/kernel/shm_rmid_forced").Code != 0, "it is there and not set")
	if runtime.GOARCH != "amd64" {
		s.Skip("the numbers of the calls are amd64's")
	}
	if b.run("command -v perl").Code != 0 {
		s.Skip("no perl in this image")
	}
	two, four := "512 2 2", "1024 4 4"
	if forced {
		two, four = "0 2 2", "0 4 4"
	}
	b.want(makeIPC+"; "+countIPC, two)
	for range 3 {
		b.want(countIPC, "0 0 0")
		b.want(makeIPC+" && "+makeIPC+"; "+countIPC, four)
	}
}
