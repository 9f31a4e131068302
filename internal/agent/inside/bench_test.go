package inside

import (
	"os/exec"
	"testing"
)

func BenchmarkPing(b *testing.B) {
	r := newRig(b)
	c, _ := r.connect(r.hello())
	for b.Loop() {
		if err := c.Ping(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkForkExec is the yardstick of BenchmarkBash.
func BenchmarkForkExec(b *testing.B) {
	for b.Loop() {
		if err := exec.Command("/bin/bash", "--noprofile", "--norc", "-c", "true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}
