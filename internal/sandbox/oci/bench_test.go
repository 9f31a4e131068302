package oci_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
)

// BenchmarkCreate compares Create with the runtime's own `run` of the same
// bundle. The two take turns at going first: after a pause the kernel lets the
// first who writes to a cgroup wait for a grace period.
func BenchmarkCreate(b *testing.B) {
	f := newFixture(b)
	var create, run, furnish, destroy time.Duration
	src, err := os.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer src.Close()
	for i := 0; b.Loop(); i++ {
		bare := f.bareBundle(b)
		if i%2 == 0 {
			run += timed(b, func() error { return f.runBare(bare) })
		}
		var sb sandbox.Sandbox
		create += timed(b, func() (err error) {
			sb, err = f.driver.Create(context.Background(), f.usualSpec(src))
			return err
		})
		if i%2 == 1 {
			run += timed(b, func() error { return f.runBare(bare) })
		}
		furnish += timed(b, sb.(sandbox.Late).Furnish)
		destroy += timed(b, func() error { return f.driver.Destroy(context.Background(), sb.Record()) })
		sb.Close()
		f.endBare(b, bare)
	}
	n := float64(b.N)
	b.ReportMetric(create.Seconds()*1e3/n, "ms/create")
	b.ReportMetric(run.Seconds()*1e3/n, "ms/run")
	b.ReportMetric(furnish.Seconds()*1e3/n, "ms/furnish")
	b.ReportMetric(destroy.Seconds()*1e3/n, "ms/destroy")
	b.ReportMetric(create.Seconds()/run.Seconds(), "create/run")
}

// usualSpec has a worktree of the host and an output directory.
func (f *fixture) usualSpec(src *os.File) sandbox.Spec {
	spec := f.Spec()
	spec.Worktree = sandbox.Worktree{Source: src, Mode: client.WorktreeBind, Target: sandbox.Workspace, UID: 4321, GID: 4321}
	spec.OutputDir = src.Name()
	spec.Limits.Disk = 4 << 30
	return spec
}

func timed(b *testing.B, f func() error) time.Duration {
	b.Helper()
	start := time.Now()
	if err := f(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

// bareBundle is a copy of a bundle that Create made, with names of its own.
func (f *fixture) bareBundle(b *testing.B) string {
	b.Helper()
	bare := filepath.Join(f.cfg.RunDir, "bare")
	if _, err := os.Stat(bare); err == nil {
		return bare
	}
	spec := f.Spec()
	sb, err := f.driver.Create(context.Background(), spec)
	if err != nil {
		b.Fatal(err)
	}
	defer sb.Close()
	made := filepath.Join(f.cfg.RunDir, "oci/sandboxes", spec.SessionID)
	if err := exec.Command("cp", "-a", made, bare).Run(); err != nil {
		b.Fatal(err)
	}
	config, err := os.ReadFile(bare + "/config.json")
	if err != nil {
		b.Fatal(err)
	}
	config = bytes.ReplaceAll(config, []byte(spec.SessionID), []byte("bare"))
	if err := os.WriteFile(bare+"/config.json", config, 0o600); err != nil {
		b.Fatal(err)
	}
	if err := f.driver.Destroy(context.Background(), sb.Record()); err != nil {
		b.Fatal(err)
	}
	return bare
}

func (f *fixture) runBare(bundle string) error {
	return exec.Command(f.cfg.Runtimes["runc"], "--root", bundle+".state", "run", "-d", "--bundle", bundle, "bare").Run()
}

func (f *fixture) endBare(b *testing.B, bundle string) {
	b.Helper()
	if err := exec.Command(f.cfg.Runtimes["runc"], "--root", bundle+".state", "delete", "-f", "bare").Run(); err != nil {
		b.Fatal(err)
	}
}
