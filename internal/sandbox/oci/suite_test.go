package oci_test

import (
	"testing"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/sandboxtest"
)

func TestSuite(t *testing.T) {
	sandboxtest.Run(t, func(t testing.TB) sandboxtest.Subject {
		f := newFixture(t)
		return sandboxtest.Subject{
			Driver: f.driver,
			Reopen: func() sandbox.Driver { return f.open() },
			Spec:   f.spec,
			Exec: func(t testing.TB, sb sandbox.Sandbox, spec sandbox.Spec, script string) sandboxtest.Result {
				t.Helper()
				l := &live{Sandbox: sb, t: t, spec: spec}
				l.attach()
				defer l.cg.Close()
				r := l.sh(script)
				if r.Err != "" {
					t.Fatalf("%s: %s", script, r.Err)
				}
				return sandboxtest.Result{Output: r.Output, Code: r.Code}
			},
		}
	})
}
