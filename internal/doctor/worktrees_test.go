package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/worktree/layers"
)

// TestWorktrees: kept changes are counted, those that cannot be read are named, and the
// attempt to mount an overlay leaves nothing.
func TestWorktrees(t *testing.T) {
	needs.OpenAt2(t)
	dir := t.TempDir()
	store, err := layers.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, session := range []string{"ses_over", "ses_live"} {
		tree := &layers.Tree{Session: session}
		if err := store.Begin(tree); err != nil {
			t.Fatal(err)
		}
		root := filepath.Join(dir, "layers", tree.Upper, "root")
		if err := os.Mkdir(root, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "f"), make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.End("ses_over", time.Now()); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(dir, "trees", "ses_broken.json")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	checks := map[string]client.Check{}
	for _, c := range worktrees(store) {
		checks[c.Name] = c
	}
	if c := checks["kept changes"]; c.Status != client.CheckOK || !strings.HasPrefix(c.Detail, "of 1 session that is over, 1") {
		t.Errorf("%+v", c)
	}
	if c := checks["changes of ses_broken"]; c.Status != client.CheckFail || !strings.Contains(c.Detail, broken) || !strings.Contains(c.Hint, "backup") {
		t.Errorf("%+v", c)
	}
	if c := checks["mode overlay"]; !c.Probed || c.Status != client.CheckOK && c.Hint == "" || os.Getuid() != 0 && c.Status == client.CheckOK {
		t.Errorf("%+v", c)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 4 {
		t.Errorf("there are %v, %v", left, err)
	}
}
