package oci_test

import (
	"testing"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/sandboxtest"
)

func TestSuite(t *testing.T) {
	sandboxtest.Run(t, func(t testing.TB, agent func() string) sandboxtest.Subject {
		f := newFixtureOf(t, agent())
		return sandboxtest.Subject{
			Driver: f.driver,
			Reopen: func() sandbox.Driver { return f.open() },
			Spec:   f.Spec,
			Root: func(t testing.TB) *sandbox.Root {
				_, root := newImage(t, f)
				return root
			},
			Dirs: []string{f.cfg.RunDir, f.cfg.StateDir},
		}
	})
}
