package sandboxtest

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/testrig"
)

// testLinkedWorktrees has git do in a session what takes linked worktrees away, with those of
// the host that the session does not see. They stay as they are, with all objects that
// they need, and the session's git goes on without an error.
func testLinkedWorktrees(s *suite) {
	if _, err := exec.LookPath("git"); err != nil {
		s.Skip("needs git")
	}
	dir := s.dir(owner)
	testrig.Must(s, os.Chmod(filepath.Dir(dir.Name()), 0o711)) // git runs as the owner
	git := func(where, script string) string {
		s.Helper()
		cmd := exec.Command("sh", "-ec", script)
		cmd.Dir = filepath.Join(dir.Name(), where)
		cmd.Env = []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + dir.Name(), "GIT_CONFIG_NOSYSTEM=1",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a",
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner, Gid: owner}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			s.Fatalf("%s: %v\n%s", script, err, out)
		}
		return string(out)
	}
	git("", `git init -q repo; cd repo; echo one >file; git add .; git commit -qm one
		for name in "prune" "re pair" unlock move remove force twice inside; do
			git worktree add -q --detach "../$name"
			# What only this one knows: a commit, one in the reflog, content in the index.
			(cd "../$name"; git commit -q --allow-empty -m gone; git reset -q --hard HEAD~; git commit -q --allow-empty -m "$name"; echo "$name" >new; git add new)
		done
		git worktree lock --reason mine ../prune
		mv ../inside inside; echo "gitdir: /workspace/.git/worktrees/inside" >inside/.git; echo /workspace/inside/.git >.git/worktrees/inside/gitdir`)
	list := filepath.Join(dir.Name(), "repo/.git/worktrees")
	before := pictureOf(s, list)

	spec := s.spec()
	spec.Worktree = sandbox.Worktree{
		Source: s.open(dir.Name() + "/repo"), Mode: client.WorktreeBind, Target: sandbox.Workspace, UID: owner, GID: owner,
		Linked: []sandbox.Linked{{List: ".git/worktrees", Own: []string{"inside"}}, {List: "gone/.git/worktrees"}},
	}
	b := s.create(spec)
	// By this the agent tells apart what is not the host's.
	devs := strings.Fields(b.out("cd /workspace/.git && stat -c %d . worktrees worktrees/move worktrees/inside"))
	s.holds("devices", devs[0] != devs[1] && devs[1] == devs[2] && devs[3] == devs[0], "those of .git, the list, an entry, and one of the session's are %v", devs)
	const in = "cd /workspace && export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a && "
	for _, script := range []string{
		"git worktree prune -v", "git gc -q --prune=now", "git -c gc.worktreePruneExpire=now gc -q --prune=now", "git worktree repair", "git worktree list",
	} {
		if out := b.out(in + script); strings.Contains(out, "prunable") || strings.Contains(out, "Removing") {
			s.Errorf("%s: %s", script, out)
		}
	}
	for _, script := range []string{"git worktree remove '" + dir.Name() + "/remove'", "git worktree remove --force '" + dir.Name() + "/force'", "git worktree move '" + dir.Name() + "/move' /tmp/moved"} {
		b.fails(in+script, "locked")
	}
	// What is not kept from git is so in the session alone, where it ends.
	b.out(in + "git worktree remove -f -f '" + dir.Name() + "/twice' && git worktree unlock '" + dir.Name() + "/unlock' && git worktree prune -v")
	if out := b.out(in + "git worktree list"); strings.Contains(out, "/twice ") || strings.Contains(out, "/unlock ") || !strings.Contains(out, "/prune ") {
		s.Errorf("in the session: %s", out)
	}
	b.out(in + `git worktree add -q -b made /tmp/made && cd /tmp/made && echo made >made && git add made && git commit -qm made &&
		cd /workspace && git worktree list | grep -q /tmp/made && git worktree remove /tmp/made && git worktree add -q /tmp/again made`)
	b.out(in + "cd inside && git commit -qm inside && git status --short")
	if diff := changed(before, pictureOf(s, list)); len(diff) > 0 {
		s.Errorf("on the host these have changed: %q", diff)
	}
	git("repo", `git worktree add -q -b late ../late`) // while the session lives
	b.out(in + "git worktree prune")

	git("repo", `git fsck --no-dangling; test "$(git log --format=%s -1 made)" = made; test ! -e .git/worktrees/made; test ! -e .git/worktrees/again
		for name in "prune" "re pair" unlock move remove force twice late; do
			test "$(git -C "../$name" log --format=%s -1)" = "$name" || test "$name" = late
			git -C "../$name" status --short >/dev/null
		done
		for name in "prune" "re pair" unlock move remove force twice; do
			git -C "../$name" cat-file -p :new | grep -qx "$name"
			git -C "../$name" cat-file -e "HEAD@{2}^{tree}"
		done
		cd inside; echo gitdir: ../.git/worktrees/inside >.git; test "$(git log --format=%s -1)" = inside; test -z "$(git status --short)"`)
}

// pictureOf is what a directory holds: kind, mode, owner, time and content by path. The entry
// "inside" is left out.
func pictureOf(s *suite, dir string) map[string]string {
	s.Helper()
	seen := map[string]string{}
	testrig.Must(s, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.Name() == "inside" {
			return fs.SkipDir
		}
		fi, err := e.Info()
		if err != nil {
			return err
		}
		var sum [sha256.Size]byte
		if fi.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum = sha256.Sum256(b)
		}
		st := fi.Sys().(*syscall.Stat_t)
		seen[path] = fmt.Sprint(fi.Mode(), st.Uid, st.Gid, st.Ino, fi.ModTime().UnixNano(), sum)
		return nil
	}))
	return seen
}

// changed are the keys that two maps do not have alike.
func changed(a, b map[string]string) (keys []string) {
	for k := range a {
		if a[k] != b[k] {
			keys = append(keys, k)
		}
	}
	for k := range maps.Keys(b) {
		if _, ok := a[k]; !ok {
			keys = append(keys, k)
		}
	}
	return keys
}
