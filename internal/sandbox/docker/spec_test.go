package docker

import (
	"slices"
	"testing"

	"github.com/docker/docker/api/types/container"

	"github.com/toold/toold/internal/sandbox"
)

// TestCoreLimit: of no program in a container is there a core file, and no helper of the host's is
// started for one: the limit is 1, as that of other sandboxes. 0 would not keep the kernel from it.
func TestCoreLimit(t *testing.T) {
	limits := (&creation{spec: &sandbox.Spec{}}).resources().Ulimits
	i := slices.IndexFunc(limits, func(u *container.Ulimit) bool { return u.Name == "core" })
	if i < 0 || limits[i].Soft != 1 || limits[i].Hard != 1 {
		t.Errorf("limits are %+v", limits)
	}
}
