package systemd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// hereVariable is the environment variable that makes the machine of the tests the one that they
// run on: a virtual one, which is thrown away, with toold installed.
const hereVariable = "TOOLD_TEST_SYSTEMD_HERE"

// here is that machine, with files laid over its root until the test ends. Then nothing of toold
// runs or is on record.
func here(t *testing.T, files map[string]string) *machine {
	t.Helper()
	if os.Getpid() == 1 || os.Geteuid() != 0 {
		t.Fatal("this is no host of its own: its first process is to be systemd, and this one root's")
	}
	m := &machine{t: t, log: new(safeBuffer)}
	for path, content := range files {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%s is there already: %v", path, err)
		}
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(content), 0o644))
	}
	m.run("systemctl", "daemon-reload")
	t.Cleanup(func() {
		if t.Failed() {
			m.tell()
		}
		_, err := m.try("systemctl", "stop", "toold.socket", "toold.slice")
		for path := range files {
			err = errors.Join(err, os.Remove(path))
		}
		_, reloaded := m.try("systemctl", "daemon-reload")
		_, _ = m.try("systemctl", "reset-failed")
		_, emptied := m.try("find", "/var/lib/toold", "-xdev", "-mindepth", "1", "-delete")
		if err = errors.Join(err, reloaded, emptied); err != nil {
			t.Error(err)
		}
	})
	return m
}
