// Package sandboxtest is the suite that every sandbox driver passes: what
// package sandbox promises, seen from outside and from inside of real sandboxes.
//
// A driver's test calls Run with a function that gives it a Subject. Attacks and
// speed are not its business.
package sandboxtest

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/internal/sandbox"
)

// Subject is a driver under test.
type Subject struct {
	Driver sandbox.Driver
	// Reopen makes the driver again, as a restarted daemon would.
	Reopen func() sandbox.Driver
	// Spec gives a valid spec with names and ids of its own and an empty
	// worktree. All specs of a Subject have the same owner.
	Spec func() sandbox.Spec
	// Exec runs a shell script in sb as the tool user, under the limits of the
	// tools, by whatever agent the driver starts.
	Exec func(t testing.TB, sb sandbox.Sandbox, spec sandbox.Spec, script string) Result
}

// Result is what a script did.
type Result struct {
	Output string // stdout and stderr
	Code   int    // -1 when a signal ended it
}

// Run runs the suite. open is called once for each test; it registers its own
// clean-up.
func Run(t *testing.T, open func(t testing.TB) Subject) {
	for _, tt := range []struct {
		name string
		test func(*suite)
	}{
		{"Inside", testInside},
		{"Identity", testIdentity},
		{"Worktree", testWorktree},
		{"WorktreeReadOnly", testWorktreeReadOnly},
		{"WorktreeForeignFiles", testForeignFiles},
		{"Output", testOutput},
		{"Mounts", testMounts},
		{"MountTargets", testMountTargets},
		{"MemoryLimit", testMemoryLimit},
		{"PIDsLimit", testPIDsLimit},
		{"CPULimit", testCPULimit},
		{"TmpLimit", testTmpLimit},
		{"Unsupported", testUnsupported},
		{"Usage", testUsage},
		{"Done", testDone},
		{"Adopt", testAdopt},
		{"Names", testNames},
		{"Destroy", testDestroy},
		{"Isolation", testIsolation},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(&suite{T: t, Subject: open(t)}) })
	}
}

// suite is one test of the suite.
type suite struct {
	*testing.T
	Subject
}

// box is a sandbox that a test has made.
type box struct {
	sandbox.Sandbox
	s    *suite
	spec sandbox.Spec
}

func (s *suite) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	s.Cleanup(cancel)
	return ctx
}

// create makes a sandbox that ends with the test.
func (s *suite) create(spec sandbox.Spec) *box {
	s.Helper()
	sb, err := s.Driver.Create(s.ctx(), spec)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		sb.Close()
		if err := s.Driver.Destroy(context.Background(), sb.Record()); err != nil {
			s.Error(err)
		}
	})
	return &box{Sandbox: sb, s: s, spec: spec}
}

// run runs a script that may fail.
func (b *box) run(script string) Result {
	b.s.Helper()
	return b.s.Exec(b.s.T, b.Sandbox, b.spec, script)
}

// out is what a script prints that must succeed.
func (b *box) out(script string) string {
	b.s.Helper()
	r := b.run(script)
	if r.Code != 0 {
		b.s.Fatalf("%s: exit code %d\n%s", script, r.Code, r.Output)
	}
	return strings.TrimSpace(r.Output)
}

// want checks what a script prints.
func (b *box) want(script, want string) {
	b.s.Helper()
	if got := b.out(script); got != want {
		b.s.Errorf("%s: got %q, want %q", script, got, want)
	}
}

// fails checks that a script fails and says why.
func (b *box) fails(script, says string) {
	b.s.Helper()
	if r := b.run(script); r.Code == 0 || !strings.Contains(r.Output, says) {
		b.s.Errorf("%s: exit code %d, want a failure saying %q\n%s", script, r.Code, says, r.Output)
	}
}

// dir makes a directory of a user of the host.
func (s *suite) dir(uid int) *os.File {
	s.Helper()
	dir := s.TempDir()
	if err := os.Chown(dir, uid, uid); err != nil {
		s.Fatal(err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		s.Fatal(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { f.Close() })
	return f
}

func (s *suite) write(path, content string, uid int, mode os.FileMode) {
	s.Helper()
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		s.Fatal(err)
	}
	if err := os.Chown(path, uid, uid); err != nil {
		s.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		s.Fatal(err)
	}
}

// names are the ids that List shows.
func (s *suite) names(owner string) []string {
	s.Helper()
	list, err := s.Driver.List(s.ctx(), owner)
	if err != nil {
		s.Fatal(err)
	}
	var names []string
	for _, r := range list {
		names = append(names, r.SessionID)
	}
	return names
}
