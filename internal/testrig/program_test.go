package testrig

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// TestWriteProgram: programs can be run as soon as they are written, while others are started.
func TestWriteProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var starters sync.WaitGroup
	for n := range 8 {
		starters.Go(func() {
			for i := range 60 {
				path := filepath.Join(dir, fmt.Sprint(n, "-", i))
				Must(t, WriteProgram(path, []byte("#!/bin/true\n")), exec.Command(path).Run())
			}
		})
	}
	starters.Wait()
}
