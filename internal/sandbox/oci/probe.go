package oci

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/process"
)

const (
	// probeOwner labels the throw-away sandboxes of this file.
	probeOwner = "probe"
	// probeUIDBase begins the uid range of those of the first runtime, the last range that
	// there is. Each further runtime has the one below.
	probeUIDBase = 1<<32 - 3<<16
	probeTime    = 30 * time.Second
)

// runtimeProbes remembers which runtimes work here. A failure is not remembered: that a runtime
// was killed, or the host too busy, says nothing about the next time.
type runtimeProbes struct {
	asked singleflight.Group // by name; who asks while it is probed has the same answer
	life  context.Context    //nolint:containedctx // of the driver: they go on when the one who asked leaves
	end   context.CancelCauseFunc
	run   sync.WaitGroup
	mu    sync.Mutex      // guards the fields below
	works map[string]bool // by name, for good
	alive map[string]bool // the sandboxes of probes that run
}

// Runtimes implements sandbox.Driver.
func (d *Driver) Runtimes(context.Context) ([]string, error) { return d.names, nil }

// Try implements sandbox.Driver: it makes a sandbox, until that has worked once. Versions and
// feature lists have been wrong about that too often. A probe goes on when the one who asked
// leaves, for others who wait for it.
func (d *Driver) Try(ctx context.Context, name string) error {
	if err := sandbox.CheckRuntime(name, d.names); err != nil {
		return err
	}
	answer := d.probes.asked.DoChan(name, func() (any, error) { return nil, d.probe(name) })
	select {
	case r := <-answer:
		return r.Err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// errClosed is what probes end with when the driver does.
var errClosed = errors.New("the driver is closed")

// begin counts a probe, unless the driver is closed.
func (p *runtimeProbes) begin(name string) (works bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := context.Cause(p.life); err != nil {
		return false, err
	}
	p.run.Add(1)
	return p.works[name], nil
}

// close ends the probes that run, and waits for them.
func (p *runtimeProbes) close() {
	p.mu.Lock()
	p.end(errClosed)
	p.mu.Unlock()
	p.run.Wait()
}

// Close ends what the driver does by itself: probes of runtimes that somebody has left. Sandboxes
// live on; nothing else may be asked of it afterwards.
func (d *Driver) Close() error {
	d.probes.close()
	return nil
}

// probe is Try for one at a time.
func (d *Driver) probe(name string) error {
	works, err := d.probes.begin(name)
	if err != nil {
		return err
	}
	defer d.probes.run.Done()
	if works {
		return nil
	}
	ctx, cancel := context.WithTimeout(d.probes.life, probeTime)
	defer cancel()
	err = d.probeOnce(ctx, name)
	switch {
	case err == nil:
		d.probes.mu.Lock()
		d.probes.works[name] = true
		d.probes.mu.Unlock()
		return nil
	case d.probes.life.Err() != nil:
		return errClosed
	case ctx.Err() != nil:
		err = fmt.Errorf("it has not made a sandbox within %s: %w", probeTime, err)
	}
	d.log.Warn("runtime does not work here now", "runtime", name, "error", err)
	return err
}

func (d *Driver) probeOnce(ctx context.Context, name string) error {
	if _, err := os.Stat(d.cfg.Runtimes[name]); err != nil {
		return err
	}
	if err := d.sweepProbes(ctx); err != nil {
		return err
	}
	maker, err := process.Open(os.Getpid(), 0, nil)
	if err != nil {
		return err
	}
	defer func() { _ = maker.Close() }()
	random := make([]byte, 32) // the agent takes no shorter nonce
	rand.Read(random)
	id := "probe-" + hex.EncodeToString(random[:8])
	defer d.probing(id)()
	base := probeUIDBase - uint32(slices.Index(d.names, name))*sandbox.RangeSize
	spec := sandbox.Spec{
		ID:    sandbox.ID{SessionID: id, Incarnation: fmt.Sprintf(probeMaker, maker.PID(), maker.Start()), Owner: probeOwner, UIDBase: base},
		Shape: sandbox.Shape{Runtime: name, Limits: client.Limits{Tmp: 1 << 20}},
		Claim: sandbox.Claim{Worktree: sandbox.Worktree{Mode: client.WorktreeEmpty, Target: sandbox.Workspace}},
		Nonce: random,
	}
	sb, err := d.Create(ctx, spec)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTime) // it goes when the driver does, too
	defer cancel()
	return errors.Join(sb.Close(), d.Destroy(ctx, sb.Record()))
}

// probing says of a probe's sandbox that it is at work, until over is called.
func (d *Driver) probing(id string) (over func()) {
	d.probes.mu.Lock()
	defer d.probes.mu.Unlock()
	d.probes.alive[id] = true
	return func() {
		d.probes.mu.Lock()
		defer d.probes.mu.Unlock()
		delete(d.probes.alive, id)
	}
}

// probeMaker is the incarnation of a probe's sandbox: the id of the daemon's process, and when it began.
const probeMaker = "%d since %d"

// ofAnother reports whether a probe's sandbox is at work for another daemon of this host, that has the
// same cgroup above its sandboxes.
func ofAnother(rec sandbox.Record) bool {
	var pid int
	var start uint64
	if _, err := fmt.Sscanf(rec.Incarnation, probeMaker, &pid, &start); err != nil || pid == os.Getpid() || start == 0 {
		return false
	}
	maker, err := process.Open(pid, start, nil)
	if err != nil {
		return false
	}
	_ = maker.Close()
	return true
}

// sweepProbes removes what is left of probes that were cut short, by this process or one that has
// ended.
func (d *Driver) sweepProbes(ctx context.Context) error {
	old, err := d.List(ctx, probeOwner)
	for _, rec := range old {
		d.probes.mu.Lock()
		alive := d.probes.alive[rec.SessionID]
		d.probes.mu.Unlock()
		if !alive && !ofAnother(rec) {
			err = errors.Join(err, d.Destroy(ctx, rec))
		}
	}
	return err
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
