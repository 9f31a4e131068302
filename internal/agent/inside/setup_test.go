package inside

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
)

func TestFreeTmp(t *testing.T) {
	r := newRig(t)
	c, _ := r.connect(r.hello())
	if os.Getuid() == 0 {
		// /dev/shm is the host's here; only what the tool user owns can go.
		if _, err := os.Stat("/dev/shm"); err == nil {
			t.Log("with the host's /dev/shm")
		}
	}
	tmp := filepath.Join(r.dir, "tmp")
	r.bash(c, "a", `mkdir -p tmp/a/b tmp/c; echo x > tmp/a/b/f; ln -s / tmp/l; mkfifo tmp/p; mkdir tmp/locked; touch tmp/locked/f; chmod 0 tmp/locked
touch keep; ln -s ../keep tmp/k; p=tmp; for i in $(seq 700); do p=$p/d; done; mkdir -p $p; for i in $(seq 3000); do : > tmp/n$i; done`)
	sp := r.server.session.programs
	if err := sp.FreeTmp(t.Context(), 1<<50, tmp, "/dev/shm"); err == nil || !strings.Contains(err.Error(), "not what fills") {
		t.Errorf("with little in them: %v", err)
	}
	if _, err := os.Stat(filepath.Join(tmp, "n1")); err != nil {
		t.Error(err)
	}
	if err := sp.FreeTmp(t.Context(), 0, tmp, filepath.Join(r.dir, "none"), ""); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) != 0 {
		t.Errorf("left: %v %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "keep")); err != nil {
		t.Error(err)
	}
	if err := sp.FreeTmp(t.Context(), 0, filepath.Join(r.dir, "keep")); err == nil {
		t.Error("a file is no directory")
	}
}

// Freeing has an end while a tool makes files, and there is one at a time.
func TestFreeTmpAgainstAMaker(t *testing.T) {
	r := newRig(t)
	c, _ := r.connect(r.hello())
	over := make(chan error, 1)
	go func() {
		_, err := c.Run(t.Context(), bashCall("maker", `mkdir tmp
python3 -c '
import os
n = 0
while True:
    n += 1
    os.close(os.open("tmp/%d" % n, os.O_CREAT))
    if n == 500: open("ready", "w")
'`), &sink{})
		over <- err
	}()
	testrig.Eventually(t, "files are made", func() bool {
		_, err := os.Stat(filepath.Join(r.dir, "ready"))
		return err == nil
	})
	freed := make(chan error, 1)
	go func() { freed <- r.server.session.programs.FreeTmp(t.Context(), 0, filepath.Join(r.dir, "tmp")) }()
	select {
	case err := <-freed:
		t.Logf("freed: %v", err) // it may have met a moment without a file
	case <-time.After(80 * time.Second):
		t.Fatal("no end")
	}
	r.server.session.freeing.Lock()
	if err := c.FreeTmp(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("second one: %v", err)
	}
	r.server.session.freeing.Unlock()
	if err := c.Abort("maker", run.ReasonAborted); err != nil {
		t.Fatal(err)
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
}
