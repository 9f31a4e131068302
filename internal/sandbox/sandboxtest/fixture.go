package sandboxtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/testrig"
)

// Fixture is what the driver of one test has to itself on the host.
type Fixture struct {
	testing.TB
	// Dir is for the driver's directories. Everybody may pass it.
	Dir string
	// Cgroup is the one above those of its sandboxes.
	Cgroup string
	// Owner is that of all specs.
	Owner string
	// Lost: what made the sandboxes is gone, and End cleans up here alone.
	Lost bool
}

// NewFixture makes the directory; dir and cgroup are what the names of the two begin
// with. Whoever calls it arranges for End.
func NewFixture(t testing.TB, dir, cgroup string) *Fixture {
	t.Helper()
	made, err := os.MkdirTemp(filepath.Split(dir))
	testrig.Must(t, err)
	testrig.Must(t, os.Chmod(made, 0o711))
	return &Fixture{TB: t, Dir: made, Cgroup: cgroup + RandomHex(4), Owner: "test-" + RandomHex(4)}
}

// End destroys what the test has left, and fails when that leaves anything.
func (f *Fixture) End(d sandbox.Driver) {
	ctx := context.Background()
	list, err := d.List(ctx, f.Owner)
	if err != nil && !f.Lost {
		f.Error(err)
	}
	for _, rec := range list {
		if err := d.Destroy(ctx, rec); err != nil && !f.Lost {
			f.Error(err)
		}
	}
	if err := os.RemoveAll(f.Dir); err != nil {
		f.Error(err)
	}
	groups, err := filepath.Glob("/sys/fs/cgroup/*" + f.Cgroup)
	if err != nil {
		f.Error(err)
	}
	for _, g := range append(groups, "/sys/fs/cgroup"+f.Cgroup) {
		if err := os.Remove(g); err != nil && !os.IsNotExist(err) {
			f.Errorf("cgroup is left: %v", err)
		}
	}
}

// bases counts the ranges of ids that specs were given, over and over, and block is the
// first id of all that this process has.
var (
	bases atomic.Uint32
	block = sync.OnceValues(func() (uint32, error) { base, _, err := testrig.ClaimUIDs(); return base, err })
)

// Spec is that of a small session with names and ids of its own and an empty worktree.
func (f *Fixture) Spec() sandbox.Spec {
	f.Helper()
	first, err := block()
	testrig.Must(f, err)
	nonce := make([]byte, 32)
	rand.Read(nonce)
	return sandbox.Spec{
		ID: sandbox.ID{
			SessionID: "ses_" + RandomHex(8), Incarnation: RandomHex(8), Owner: f.Owner,
			UIDBase: first + bases.Add(1)%testrig.UIDRanges*sandbox.RangeSize,
		},
		Shape: sandbox.Shape{Limits: client.Limits{Memory: 256 << 20, PIDs: 64, Tmp: 16 << 20}},
		Claim: sandbox.Claim{Worktree: sandbox.Worktree{Mode: client.WorktreeEmpty, Target: sandbox.Workspace}},
		Nonce: nonce,
	}
}

// Ctx ends after some minutes, or with the test.
func (f *Fixture) Ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	f.Cleanup(cancel)
	return ctx
}

// Logger writes to the test's own.
func (f *Fixture) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(f.Output(), nil)) }

// RandomHex is n random bytes as a name that nothing else has.
func RandomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// StillAlive fails when a sandbox has ended.
func StillAlive(t testing.TB, sb sandbox.Sandbox) {
	t.Helper()
	select {
	case <-sb.Done():
		t.Fatal("the sandbox has ended")
	default:
	}
}

// AwaitEnd waits for the end of a sandbox.
func AwaitEnd(t testing.TB, sb sandbox.Sandbox) {
	t.Helper()
	await(t, sb.Done(), "nobody has noticed the end of the sandbox")
}

// await waits until done is closed; otherwise it ends the test, and says this.
func await(t testing.TB, done <-chan struct{}, otherwise string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(waitTime):
		t.Fatal(otherwise)
	}
}
