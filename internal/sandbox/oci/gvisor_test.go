package oci_test

import (
	"errors"
	"os"
	"testing"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/sandboxtest"
)

// TestSuiteGVisor gives runsc another name: what a runtime is, is not read from it.
func TestSuiteGVisor(t *testing.T) {
	runsc := needBuilt(t, "runsc", "runsc")
	sandboxtest.Run(t, func(t testing.TB, agent func() string) sandboxtest.Subject {
		f := newFixtureWith(t, "tier", runsc, agent())
		return sandboxtest.Subject{
			Driver:  f.driver,
			Reopen:  func() sandbox.Driver { return f.open() },
			Spec:    f.Spec,
			Dirs:    []string{f.cfg.RunDir, f.cfg.StateDir},
			Differs: gvisorDiffers,
		}
	})
}

// gvisorDiffers is what the suite finds otherwise on gVisor.
var gvisorDiffers = map[string]string{
	"Identity/uid map":            "the ids of the session are those of the kernel's process on the host, which programs do not see",
	"Output/nodev":                "gVisor does not say it; a device of a mount is opened as gVisor's own, or not at all",
	"Sizes/memory":                "the limit is the agent's to keep; what programs see is the memory of gVisor's machine",
	"TmpLimit/number of files":    "runsc does not pass nr_inodes on: the kernel's memory, up to the wall around the session, is the bound",
	"LinkedWorktrees/devices":     "mounts within a mount of the host have its device: the agent also warns of what git changes in the list of linked worktrees, which ends with the session",
	"Disk/late":                   "gVisor takes no mount into a running sandbox: the disks are there from its beginning",
	"Disk/usage":                  "the disks of a gVisor are not to be seen from outside of its mount namespace",
	"Relay":                       "gVisor takes no mount into a running sandbox: the session's has to be made anew",
	"RelayMounts":                 "gVisor takes no mount into a running sandbox",
	"Isolation/network namespace": "each kernel has its own and counts from the beginning; there is no other in it",
}

// gVisor renames what is mounted over, so that git's files must not seem guarded.
func TestGVisorHoldsNoGuard(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f := newFixtureWith(t, "guard", needBuilt(t, "runsc", "runsc"), self)
	spec := f.Spec()
	spec.Worktree.GuardGit = true
	if _, err := f.driver.Create(t.Context(), spec); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("error %v", err)
	}
}
