package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
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
