package exec

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/tool/run"
)

// locksBehind are the locks of the git repository that dir is in that were made after began:
// what a git that was killed has left, which every later git refuses to pass.
func locksBehind(dir string, began time.Time) []string {
	repository := repositoryOf(dir)
	if repository == "" {
		return nil
	}
	var locks []string
	looked := 0
	_ = filepath.WalkDir(repository, func(path string, e fs.DirEntry, err error) error {
		looked++
		switch {
		case looked > maxLooked || len(locks) == run.MaxLocks:
			return filepath.SkipAll
		case err != nil, e.IsDir() && slices.Contains(unlocked, e.Name()):
			return fs.SkipDir
		case e.IsDir() || filepath.Ext(path) != ".lock":
			return nil
		}
		// File times are those of the kernel's last tick, which may be before began.
		if info, err := e.Info(); err == nil && info.ModTime().After(began.Add(-time.Second)) {
			locks = append(locks, path)
		}
		return nil
	})
	return locks
}

// maxLooked bounds the names of a repository that are looked at.
const maxLooked = 20000

// unlocked are directories of a repository in which git takes no locks, or none that is in the way.
var unlocked = []string{"objects", "hooks", "logs", "lfs"}

// repositoryOf is the git directory of the repository that dir is in, "" outside of one: .git, or
// where the file .git of a linked worktree or a submodule leads, with what all its worktrees share.
func repositoryOf(dir string) string {
	for {
		git := filepath.Join(dir, ".git")
		if info, err := os.Lstat(git); err == nil && info.Mode().IsRegular() {
			return commonOf(dir, leads(git, "gitdir: "))
		} else if info, err := os.Stat(git); err == nil && info.IsDir() {
			return git
		}
		above := filepath.Dir(dir)
		if above == dir {
			return ""
		}
		dir = above
	}
}

// commonOf is the directory that a git directory shares with others, mostly itself; "" where there is
// none. Its name is relative to dir.
func commonOf(dir, git string) string {
	if git == "" {
		return ""
	}
	if !filepath.IsAbs(git) {
		git = filepath.Join(dir, git)
	}
	if _, err := os.Lstat(filepath.Join(git, "HEAD")); err != nil {
		return "" // no git directory
	}
	switch common := leads(filepath.Join(git, "commondir"), ""); {
	case filepath.IsAbs(common):
		return common
	case common != "":
		return filepath.Join(git, common)
	}
	return git
}

// leads is the path that a file of git's names after a prefix; "" for none.
func leads(file, prefix string) string {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	text := make([]byte, unix.PathMax)
	n, _ := io.ReadFull(f, text)
	path, found := strings.CutPrefix(strings.TrimRight(string(text[:n]), "\r\n"), prefix)
	if !found || strings.ContainsRune(path, 0) {
		return ""
	}
	return path
}
