// Package sandboxtest is the suite that every sandbox driver passes: what
// package sandbox promises, seen from outside and from inside of real sandboxes,
// with the agent as it ships in them.
//
// A driver's test calls Run with a function that gives it a Subject; that is all
// of it. Attacks need a whole daemon and are made by test/attack, on each of its
// tiers. Speed is not its business. What drivers test of themselves alone they do on
// a Fixture.
package sandboxtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/testrig"
)

// Subject is a driver under test.
type Subject struct {
	Driver sandbox.Driver
	// Reopen makes the driver again, as a restarted daemon would.
	Reopen func() sandbox.Driver
	// Spec gives a valid spec with names and ids of its own and an empty
	// worktree. All specs of a Subject have the same owner.
	Spec func() sandbox.Spec
	// Root makes the root filesystem of an image, with a shell and the usual small
	// programs, for drivers that are given such; nil for others. Each call makes
	// another one, which the test may change before it uses it.
	Root func(t testing.TB) *sandbox.Root
	// Dirs are where the driver keeps what belongs to a sandbox. Nothing with a
	// session's id in its name stays there.
	Dirs []string
	// Differs names what the driver cannot do, or does otherwise, with the
	// reason: a test ("CPULimit"), which is skipped then, or one check of a test
	// ("Identity/seccomp"), which must fail then.
	Differs map[string]string
}

// Run runs the suite. open is called once for each test and registers its own
// clean-up; agent gives the agent's program, built for the suite where a driver asks for it.
func Run(t *testing.T, open func(t testing.TB, agent func() string) Subject) {
	agent := sync.OnceValue(func() string { return BuildAgent(t) })
	for _, tt := range []struct {
		name string
		test func(*suite)
	}{
		{"Inside", testInside},
		{"Identity", testIdentity},
		{"Worktree", testWorktree},
		{"WorktreeReadOnly", testWorktreeReadOnly},
		{"WorktreeForeignFiles", testForeignFiles},
		{"LinkedWorktrees", testLinkedWorktrees},
		{"Overlay", testOverlay},
		{"OverlayForeign", testOverlayForeign},
		{"Relay", testRelay},
		{"RelayMounts", testRelayMounts},
		{"Output", testOutput},
		{"Journal", testJournal},
		{"Mounts", testMounts},
		{"MountTargets", testMountTargets},
		{"Deep", testDeep},
		{"Search", testSearch},
		{"ProgramsRemoved", testProgramsRemoved},
		{"Picture", testPicture},
		{"Trees", testTrees},
		{"MemoryLimit", testMemoryLimit},
		{"PIDsLimit", testPIDsLimit},
		{"CPULimit", testCPULimit},
		{"Sizes", testSizes},
		{"TmpLimit", testTmpLimit},
		{"Disk", testDisk},
		{"FileLimits", testFileLimits},
		{"Image", testImage},
		{"ImageDisk", testImageDisk},
		{"Unsupported", testUnsupported},
		{"Usage", testUsage},
		{"Stdio", testStdio},
		{"LargeOutput", testLargeOutput},
		{"Stall", testStall},
		{"Abort", testAbort},
		{"Restart", testRestart},
		{"Done", testDone},
		{"AgentKilled", testAgentKilled},
		{"Adopt", testAdopt},
		{"Names", testNames},
		{"Destroy", testDestroy},
		{"DestroyBusy", testDestroyBusy},
		{"Isolation", testIsolation},
		{"IPC", testIPC},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &suite{T: t, name: tt.name, Subject: open(t, agent), seen: map[string]bool{}}
			if why := s.Differs[tt.name]; why != "" {
				t.Skip(why)
			}
			t.Cleanup(s.end)
			tt.test(s)
		})
	}
}

// BuildAgent builds the agent as it ships, for the time of the test.
func BuildAgent(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	testrig.Must(t, testrig.Build(dir, "cmd/toolagent"))
	return filepath.Join(dir, "toolagent")
}

// Ripgrep is the directory with the one that every sandbox gets.
func Ripgrep(t testing.TB) string {
	t.Helper()
	dir, err := testrig.Bin("ripgrep")
	testrig.Must(t, err)
	return dir
}

// suite is one test of the suite.
type suite struct {
	*testing.T
	Subject
	name  string
	seen  map[string]bool // checks that failed as Differs says
	specs []sandbox.Spec  // of all sandboxes that were asked for
}

// holds is a check that a driver may differ in, under this name.
func (s *suite) holds(check string, ok bool, format string, args ...any) {
	s.Helper()
	switch {
	case ok:
	case s.Differs[s.name+"/"+check] != "":
		s.seen[check] = true
	default:
		s.Errorf("%s: %s", check, fmt.Sprintf(format, args...))
	}
}

// end runs when all sandboxes of the test are destroyed.
func (s *suite) end() {
	for _, spec := range s.specs {
		s.nothingLeft(spec)
	}
	for name := range s.Differs {
		test, check, ok := strings.Cut(name, "/")
		if ok && test == s.name && !s.seen[check] && !s.Failed() {
			s.Errorf("the driver does not differ in %q any more", name)
		}
	}
}

func (s *suite) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), callTime+time.Minute)
	s.Cleanup(cancel)
	return ctx
}

// spec is Subject.Spec, remembered for the end of the test.
func (s *suite) spec() sandbox.Spec {
	spec := s.Spec()
	s.specs = append(s.specs, spec)
	return spec
}

// dir makes a directory of a user of the host.
func (s *suite) dir(uid int) *os.File {
	s.Helper()
	dir := s.TempDir()
	testrig.Must(s, os.Chown(dir, uid, uid))
	testrig.Must(s, os.Chmod(dir, 0o700))
	return s.open(dir)
}

func (s *suite) open(dir string) *os.File {
	s.Helper()
	f, err := os.Open(dir)
	testrig.Must(s, err)
	s.Cleanup(func() { _ = f.Close() })
	return f
}

func (s *suite) write(path, content string, uid int, mode os.FileMode) {
	s.Helper()
	testrig.Must(s, os.WriteFile(path, []byte(content), mode))
	testrig.Must(s, os.Chown(path, uid, uid))
	testrig.Must(s, os.Chmod(path, mode))
}

// names are the ids that List shows.
func (s *suite) names(owner string) []string {
	s.Helper()
	list, err := s.Driver.List(s.ctx(), owner)
	testrig.Must(s, err)
	var names []string
	for _, r := range list {
		names = append(names, r.SessionID)
	}
	return names
}

// nothingLeft looks for traces of a session on the host. The kernel may let go of what
// the dead had, and of a loop device that somebody of the host has open, a moment later.
func (s *suite) nothingLeft(spec sandbox.Spec) {
	s.Helper()
	for _, name := range s.names(spec.Owner) {
		s.Errorf("List still shows %s", name)
	}
	if who := s.survivor(spec.UIDBase); who != "" {
		s.Errorf("%s of the session's uids is left", who)
	}
	var left []string
	testrig.Soon(func() bool { left = s.traces(spec); return len(left) == 0 })
	for _, what := range left {
		s.Error("left: " + what)
	}
}

// traces are mounts, sockets, loop devices, cgroups and files with a session's id.
func (s *suite) traces(spec sandbox.Spec) (left []string) {
	s.Helper()
	for _, file := range []string{"/proc/self/mountinfo", "/proc/net/unix"} {
		text, err := os.ReadFile(file)
		testrig.Must(s, err)
		for line := range bytes.Lines(text) {
			if bytes.Contains(line, []byte(spec.SessionID)) {
				left = append(left, fmt.Sprintf("in %s: %s", file, bytes.TrimSpace(line)))
			}
		}
	}
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	testrig.Must(s, err)
	for _, loop := range loops {
		if b, err := os.ReadFile(loop); err == nil && bytes.Contains(b, []byte(spec.SessionID)) {
			left = append(left, fmt.Sprintf("a loop device with %s", bytes.TrimSpace(b)))
		}
	}
	for _, dir := range append([]string{"/sys/fs/cgroup"}, s.Dirs...) {
		err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if err == nil && strings.Contains(filepath.Base(path), spec.SessionID) {
				left = append(left, path)
			}
			return nil // what others remove meanwhile is not there
		})
		testrig.Must(s, err)
	}
	return left
}
