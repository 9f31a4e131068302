package oci

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
)

const (
	// probeOwner labels the throw-away sandboxes of this file.
	probeOwner = "probe"
	// probeUIDBase is their uid range, the last one there is.
	probeUIDBase = 1<<32 - 3<<16
	probeTime    = 30 * time.Second
	// probeAgain is how long a failure is believed; success is, for good.
	probeAgain = 30 * time.Second
)

// runtimeProbes remembers which runtimes work here.
type runtimeProbes struct {
	// mu guards results and lets one probe run at a time.
	mu      sync.Mutex
	results map[string]probeResult
}

type probeResult struct {
	err  error
	when time.Time
}

// probe says whether a runtime really runs sandboxes here, by making one.
// Versions and feature lists have been wrong about that too often.
func (d *Driver) probe(ctx context.Context, name string) error {
	d.probes.mu.Lock()
	defer d.probes.mu.Unlock()
	if r, ok := d.probes.results[name]; ok && (r.err == nil || time.Since(r.when) < probeAgain) {
		return r.err
	}
	err := d.probeOnce(ctx, name)
	if ctx.Err() != nil {
		return err // says nothing about the runtime
	}
	d.probes.results[name] = probeResult{err, time.Now()}
	if err != nil {
		d.log.Warn("runtime does not work here", "runtime", name, "error", err)
	}
	return err
}

func (d *Driver) probeOnce(ctx context.Context, name string) error {
	if _, err := os.Stat(d.cfg.Runtimes[name]); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	// What an earlier process has left of its probes.
	old, err := d.List(ctx, probeOwner)
	for _, rec := range old {
		err = errors.Join(err, d.Destroy(ctx, rec))
	}
	if err != nil {
		return err
	}
	random := make([]byte, 32) // the agent takes no shorter nonce
	rand.Read(random)
	spec := sandbox.Spec{
		ID:    sandbox.ID{SessionID: "probe-" + hex.EncodeToString(random[:8]), Incarnation: "probe", Owner: probeOwner, UIDBase: probeUIDBase},
		Shape: sandbox.Shape{Runtime: name, Limits: client.Limits{Tmp: 1 << 20}},
		Claim: sandbox.Claim{Worktree: sandbox.Worktree{Mode: client.WorktreeEmpty, Target: sandbox.Workspace}},
		Nonce: random,
	}
	sb, err := d.Create(ctx, spec)
	if err != nil {
		return err
	}
	return errors.Join(sb.Close(), d.Destroy(ctx, sb.Record()))
}

// Runtimes implements sandbox.Driver: those that really work, default first.
func (d *Driver) Runtimes(ctx context.Context) []string {
	var list []string
	for _, name := range d.names {
		if d.probe(ctx, name) == nil {
			list = append(list, name)
		}
	}
	return list
}

// version is the first line of `--version`.
func (r runtime) version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var out bytes.Buffer
	cmd := r.command(ctx, "--version")
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s --version: %w", r.path, err)
	}
	line, _, _ := strings.Cut(out.String(), "\n")
	return line, nil
}
