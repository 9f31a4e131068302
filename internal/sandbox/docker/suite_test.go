package docker_test

import (
	"testing"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/sandboxtest"
)

func TestSuite(t *testing.T) {
	e := needDocker(t)
	sandboxtest.Run(t, func(t testing.TB, agent func() string) sandboxtest.Subject {
		f := newFixture(t, e, agent())
		return sandboxtest.Subject{
			Driver: f.driver,
			Reopen: func() sandbox.Driver { return f.open() },
			Spec:   f.Spec,
			Dirs:   []string{f.cfg.RunDir, f.cfg.StateDir},
			Differs: map[string]string{
				"Identity/uid map": "the Engine maps no users unless its userns-remap is set",
				"Sizes/processors": "there is no file in a container to show it by; nproc asks the kernel, and is right",
			},
		}
	})
}
