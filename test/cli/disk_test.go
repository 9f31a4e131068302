package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/toold/toold/internal/testrig"
)

// docs/architecture.md says what is on the disk and who may look at it, and names all of
// the state directory.
func TestDocumentedFiles(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "config.toml")
	if err := os.WriteFile(config, []byte("[network]\nmode = \"rules\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newDaemon(t, "--config", config)
	r.toolctl(t, "session", "create", "--worktree", dir)
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(r.dir, "state")
	places := strings.NewReplacer("/var/lib/toold", state, "/run/toold-uids", "/run/toold-uids", "/run/toold", filepath.Join(r.dir, "run"))
	rows := regexp.MustCompile("(?m)^\\| `(/[^`]+)` \\| (0[0-7]{3}) \\|").FindAllStringSubmatch(string(text), -1)
	documented := make(map[string]bool)
	for _, row := range rows {
		path := places.Replace(row[1])
		documented[path] = true
		want, err := strconv.ParseUint(row[2], 8, 32)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Lstat(path); err != nil {
			t.Errorf("%s: %v", row[1], err)
		} else if info.Mode().Perm() != os.FileMode(want) {
			t.Errorf("%s has the mode %04o, documented is %s", row[1], info.Mode().Perm(), row[2])
		}
	}
	files, err := os.ReadDir(state)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		path := filepath.Join(state, f.Name())
		ofSQLite := strings.HasPrefix(f.Name(), "toold.db-") || strings.HasSuffix(f.Name(), ".lock")
		if !documented[path] && !ofSQLite {
			t.Errorf("%s of the state directory is not documented", f.Name())
		}
	}
	if len(rows) < 8 {
		t.Errorf("%d rows", len(rows))
	}
}

// TestWithoutLoopDevices: on a host that has none a session says what lies in memory for that, with which bound, and what was
// full; what would need a disk is refused with what to do.
func TestWithoutLoopDevices(t *testing.T) {
	t.Parallel()
	r := newDaemonThrough(t, []string{"unshare", "--mount", "--propagation", "slave", "sh", "-c", `mount --bind /dev/null /dev/loop-control && exec "$@"`, "sh"})
	tree := filepath.Join(r.dir, "tree")
	testrig.Must(t, os.Mkdir(tree, 0o755))
	fills := []string{"--", "dd", "if=/dev/zero", "of=/tmp/a-file", "bs=1M", "count=300", "status=none"}
	for _, x := range []struct {
		says string
		line string
	}{
		{"this host has no disks for sessions", "session create --name plain --worktree " + tree},
		{"in /tmp", "session brief plain"},
		{"this host has no disks for sessions", "session create --name bounded --limit tmp=10MiB"},
		{"leave it out, or ask for an image; toolctl doctor says", "session create --limit disk=1GiB"},
		{"has no bound", "session create --mode overlay --worktree " + tree},
		{"leave it out; toolctl doctor says", "session create --mode overlay --limit disk=64MiB --worktree " + tree},
		{"no file systems in files", "doctor"},
	} {
		r.look(t, x.says, strings.Fields(x.line)...)
	}
	r.look(t, "no space left in /tmp (256MiB", append([]string{"exec", "plain"}, fills...)...)
	r.look(t, "no space left in /tmp (10MiB", append([]string{"exec", "bounded"}, fills...)...)
}
