package doctor

import (
	"fmt"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/sandbox/mount"
	"github.com/toold/toold/internal/worktree/layers"
)

// worktrees says whether this host can hold worktrees of mode overlay, and what is kept of
// sessions that are over.
func worktrees(store *layers.Store) []client.Check {
	host := client.Check{
		Group: "worktree", Name: "mode overlay", Status: client.CheckOK, Probed: true,
		Detail: "layers can lie in " + store.Dir() + ": trusted attributes, redirect_dir, id-mapped lower layers",
	}
	if err := mount.ProbeOverlay(store.Dir()); err != nil {
		host.Status, host.Detail = client.CheckWarn, "no layers can lie in "+store.Dir()+": "+err.Error()
		host.Hint = "sessions of this mode are refused: put daemon.state_dir on ext4, xfs or btrfs, with Linux 5.19 or newer"
	}
	trees, unreadable, err := store.All()
	if err != nil {
		return []client.Check{host, {Group: "worktree", Name: "kept changes", Status: client.CheckFail, Detail: err.Error()}}
	}
	checks := []client.Check{host, keptCheck(store, trees)}
	for _, x := range unreadable {
		checks = append(checks, client.Check{
			Group: "worktree", Name: "changes of " + x.Session, Status: client.CheckFail, Detail: x.Err.Error(),
			Hint: "no layer of any session is removed while it is there: put the file back from a backup, or move it away, and its changes are lost",
		})
	}
	return checks
}

// keptCheck counts what sessions that are over have left, each layer once.
func keptCheck(store *layers.Store, trees []*layers.Tree) client.Check {
	n, bytes, seen := 0, int64(0), map[string]bool{}
	for _, t := range trees {
		if t.Ended.IsZero() {
			continue
		}
		n++
		for _, l := range t.All() {
			if !seen[l] {
				seen[l] = true
				bytes += store.Bytes(t, l)
			}
		}
	}
	return client.Check{
		Group: "worktree", Name: "kept changes", Status: client.CheckOK,
		Detail: fmt.Sprintf("of %s, %s", plain.Count(n, "session that is over", "sessions that are over"), client.Size(bytes)),
	}
}
