package oci_test

import (
	"testing"

	"github.com/toold/toold/internal/sandbox/inside"
	"github.com/toold/toold/internal/sandbox/sandboxtest"
)

// The agent keeps its headroom when the memory file systems are full and the
// tools use all that they may.
func TestSessionMemory(t *testing.T) {
	f := newFixture(t)
	spec := f.Spec()
	l := f.create(spec)
	sizes, _, err := inside.SizeTmpfs(spec.Limits, &spec.Worktree, true)
	if err != nil {
		t.Fatal(err)
	}
	const headroom = 256 << 20
	got, err := f.driver.SessionMemory(spec.SessionID)
	if err != nil {
		t.Fatal(err)
	}
	if want := int(spec.Limits.Memory+sizes.Sum()) + headroom; got != want {
		t.Errorf("session has %d bytes, want %d", got, want)
	}
	// What the agent writes is the session's memory and not the tools'.
	script := "head -c 12000000 /dev/zero >/tmp/f"
	if r := l.ask(agentRequest{Agent: true, Argv: []string{"/bin/sh", "-c", script}}); r.Code != 0 {
		t.Fatalf("agent cannot write: %s %s", r.Output, r.Err)
	}
	if r := l.sh("head -c 400000000 /dev/zero | tail -c 300000000 | wc -c"); r.Code == 0 && r.Output == "300000000\n" {
		t.Error("tools went beyond their limit")
	}
	if got := l.out("echo next"); got != "next" {
		t.Errorf("next call: %q", got)
	}
	sandboxtest.StillAlive(t, l)
}
