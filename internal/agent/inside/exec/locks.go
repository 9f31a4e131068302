package exec

import (
	"os"
	"path/filepath"
	"time"

	"github.com/toold/toold/internal/tool/run"
)

// locksBehind are the locks of the git repository that dir is in that were made after began:
// what a git that was killed has left, which every later git refuses to pass.
func locksBehind(dir string, began time.Time) []string {
	repository := repositoryOf(dir)
	if repository == "" {
		return nil
	}
	entries, err := os.ReadDir(repository)
	if err != nil {
		return nil
	}
	var locks []string
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".lock" || len(locks) == run.MaxLocks {
			continue
		}
		// File times are those of the kernel's last tick, which may be before began.
		if info, err := e.Info(); err == nil && info.ModTime().After(began.Add(-time.Second)) {
			locks = append(locks, filepath.Join(repository, e.Name()))
		}
	}
	return locks
}

// repositoryOf is the .git directory of the repository that dir is in, "" outside of one.
func repositoryOf(dir string) string {
	for {
		if info, err := os.Stat(filepath.Join(dir, ".git")); err == nil && info.IsDir() {
			return filepath.Join(dir, ".git")
		}
		above := filepath.Dir(dir)
		if above == dir {
			return ""
		}
		dir = above
	}
}
