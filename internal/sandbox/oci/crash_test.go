package oci_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/oci"
	"github.com/toold/toold/internal/sandbox/sandboxtest"
)

// createEnv makes the test binary a daemon that creates one sandbox and dies.
const createEnv = "TOOLD_TEST_CREATE_AND_DIE"

type createAndDieArgs struct {
	Config oci.Config
	Spec   sandbox.Spec
	Image  string // the directory of an image; "" for none
}

func createAndDie() {
	var a createAndDieArgs
	if err := json.Unmarshal([]byte(os.Getenv(createEnv)), &a); err != nil {
		panic(err)
	}
	d, err := oci.New(a.Config)
	if err != nil {
		panic(err)
	}
	if a.Image != "" {
		dir, err := os.OpenFile(a.Image, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			panic(err)
		}
		a.Spec.Root = &sandbox.Root{Dir: dir}
	}
	fmt.Println("begin")
	sb, err := d.Create(context.Background(), a.Spec)
	if err != nil {
		panic(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(sb.Record()); err != nil {
		panic(err)
	}
	unix.Kill(os.Getpid(), unix.SIGKILL)
}

func (f *fixture) daemon(spec sandbox.Spec) *exec.Cmd {
	f.Helper()
	cfg := f.cfg
	cfg.Log = nil
	image := ""
	if spec.Root != nil {
		image, spec.Root = spec.Root.Dir.Name(), nil
	}
	args, err := json.Marshal(createAndDieArgs{cfg, spec, image})
	if err != nil {
		f.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), createEnv+"="+string(args))
	return cmd
}

// A sandbox outlives the SIGKILL of its daemon, and another takes it over.
func TestAdoptAfterKill(t *testing.T) {
	f := newFixture(t)
	spec := f.Spec()
	out, err := f.daemon(spec).Output()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		t.Fatalf("daemon did not die: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	var rec sandbox.Record
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &rec); err != nil {
		t.Fatal(err)
	}
	sb, err := f.driver.Adopt(f.Ctx(), rec)
	if err != nil {
		t.Fatal(err)
	}
	l := f.live(sb, spec)
	if got := l.out("id -u"); got != "1000" {
		t.Errorf("uid is %s", got)
	}
}

// However far a creation had come when its daemon was killed, what it made is
// found and removed.
func TestKilledCreation(t *testing.T) {
	f := newFixture(t)
	f.killCreations(f.Spec)
}

// The same with an image, whose file systems and loop devices have no other trace
// than the mount in the sandbox's directory.
func TestKilledImageCreation(t *testing.T) {
	f := newFixture(t)
	_, root := newImage(t, f)
	f.killCreations(func() sandbox.Spec { return f.imageSpec(root) })
	f.noLoops()
}

func (f *fixture) killCreations(newSpec func() sandbox.Spec) {
	t := f.TB
	t.Helper()
	for i := range 16 {
		spec := newSpec()
		cmd := f.daemon(spec)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		begin := make([]byte, len("begin\n"))
		if _, err := out.Read(begin); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i) * 5 * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed

		next := f.open()
		list, err := next.List(f.Ctx(), f.Owner)
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range list {
			if err := next.Destroy(f.Ctx(), rec); err != nil {
				t.Errorf("killed after %d ms: %v", i*5, err)
			}
		}
		f.nothingLeft(spec)
	}
}

// nothingLeft checks that a session has left no trace.
func (f *fixture) nothingLeft(spec sandbox.Spec) {
	f.Helper()
	for _, pattern := range []string{
		f.cfg.RunDir + "/oci/sandboxes/*", f.cfg.RunDir + "/oci/runtime/*/*",
		"/sys/fs/cgroup/*" + f.cfg.CgroupParent + "/*ses_*", "/sys/fs/cgroup" + f.cfg.CgroupParent + "/*ses_*",
	} {
		left, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		if len(left) > 0 {
			f.Errorf("left: %v", left)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		f.Fatal(err)
	}
	if strings.Contains(string(mounts), f.cfg.RunDir) {
		f.Error("a mount is left")
	}
	// Who is dying has left its cgroups before it is shown as dead.
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		left := f.processes(spec.UIDBase)
		if len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			f.Errorf("processes %v are left", left)
			break
		}
	}
}

// processes are those that live with an id of a session.
func (f *fixture) processes(base uint32) (list []string) {
	f.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		f.Fatal(err)
	}
	for _, dir := range dirs {
		var st unix.Stat_t
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil || unix.Stat(dir, &st) != nil || strings.Contains(string(stat), ") Z") {
			continue // dead
		}
		if st.Uid >= base && st.Uid-base < sandbox.RangeSize {
			list = append(list, dir)
		}
	}
	return list
}

// Parts that have lost the rest are found by what is left.
func TestPartsAreFound(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, f *fixture, id string){
		"no directory": func(t *testing.T, f *fixture, id string) { removeAll(t, f.cfg.RunDir+"/oci/sandboxes/"+id) },
		"no socket":    func(t *testing.T, f *fixture, id string) { removeAll(t, f.cfg.RunDir+"/oci/sandboxes/"+id+"/control") },
		"no config": func(t *testing.T, f *fixture, id string) {
			removeAll(t, f.cfg.RunDir+"/oci/sandboxes/"+id+"/config.json")
		},
		"no state": func(t *testing.T, f *fixture, id string) { removeAll(t, f.cfg.RunDir+"/oci/runtime/runc/"+id) },
		"half a state": func(t *testing.T, f *fixture, id string) {
			removeAll(t, f.cfg.RunDir+"/oci/runtime/runc/"+id+"/state.json")
		},
		"only a directory and a state": func(t *testing.T, f *fixture, id string) {
			killGroup(t, f.driver.KillDir(id))
		},
		"an empty record": func(t *testing.T, f *fixture, id string) {
			overwrite(t, f.cfg.RunDir+"/oci/sandboxes/"+id+"/record.json", "")
		},
		"another's record": func(t *testing.T, f *fixture, id string) {
			overwrite(t, f.cfg.RunDir+"/oci/sandboxes/"+id+"/record.json", `{"SessionID": "ses_other"}`)
		},
		"only a cgroup": func(t *testing.T, f *fixture, id string) {
			removeAll(t, f.cfg.RunDir+"/oci/sandboxes/"+id)
			removeAll(t, f.cfg.RunDir+"/oci/runtime/runc/"+id)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			spec := f.Spec()
			l := f.create(spec)
			harm(t, f, spec.SessionID)
			list, err := f.open().List(f.Ctx(), f.Owner)
			if err != nil {
				t.Fatal(err)
			}
			if len(list) != 1 || list[0].SessionID != spec.SessionID {
				t.Fatalf("list is %+v", list)
			}
			if err := f.driver.Destroy(f.Ctx(), list[0]); err != nil {
				t.Fatal(err)
			}
			sandboxtest.AwaitEnd(t, l)
			f.nothingLeft(spec)
		})
	}
}

// A directory that nothing names any more goes when no cgroup belongs to it.
func TestUnknownIsSwept(t *testing.T) {
	f := newFixture(t)
	live := f.Spec()
	l := f.create(live)
	for _, id := range []string{"ses_dead", live.SessionID} {
		dir := f.cfg.RunDir + "/oci/sandboxes/" + id
		if err := os.MkdirAll(dir, 0o710); err != nil {
			t.Fatal(err)
		}
		overwrite(t, dir+"/record.json", "")
	}
	overwrite(t, f.cfg.RunDir+"/oci/sandboxes/"+live.SessionID+"/config.json", "{")
	f.open()
	if _, err := os.Lstat(f.cfg.RunDir + "/oci/sandboxes/ses_dead"); !os.IsNotExist(err) {
		t.Errorf("the dead one is there: %v", err)
	}
	if err := f.driver.Destroy(f.Ctx(), l.Record()); err != nil {
		t.Fatal(err)
	}
	f.nothingLeft(live)
}

// A copy of the agent that was never finished goes with the next start.
func TestHalfAgentIsSwept(t *testing.T) {
	f := newFixture(t)
	half := filepath.Join(f.cfg.StateDir, ".agent-1234")
	overwrite(t, half, "half")
	f.open()
	if _, err := os.Lstat(half); !os.IsNotExist(err) {
		t.Errorf("the half copy is there: %v", err)
	}
	if agents, err := filepath.Glob(f.cfg.StateDir + "/agent-*"); err != nil || len(agents) != 1 {
		t.Errorf("agents: %v %v", agents, err)
	}
}

func overwrite(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func removeAll(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

// killGroup kills what is in a cgroup, and all below it, behind the driver's back.
func killGroup(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(dir+"/cgroup.kill", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
}

func TestParallel(t *testing.T) {
	f := newFixture(t)
	const n = 20
	specs := make([]sandbox.Spec, n)
	errs := make([]error, n)
	boxes := make([]sandbox.Sandbox, n)
	var wg sync.WaitGroup
	for i := range n {
		specs[i] = f.Spec()
		specs[i].Limits = client.Limits{Memory: 64 << 20, PIDs: 32, Tmp: 1 << 20}
		wg.Go(func() { boxes[i], errs[i] = f.driver.Create(f.Ctx(), specs[i]) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
		l := f.live(boxes[i], specs[i])
		if got := l.out("cat /proc/self/uid_map | tr -s ' '"); got != fmt.Sprintf("0 %d 65536", specs[i].UIDBase) {
			t.Errorf("uid map of sandbox %d is %q", i, got)
		}
	}
	for i := range n {
		wg.Go(func() { errs[i] = f.driver.Destroy(f.Ctx(), boxes[i].Record()) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	f.nothingLeft(specs[0])
}
