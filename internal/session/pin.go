package session

import (
	"errors"
	"path/filepath"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/worktree"
)

// pinDirectory opens a directory that a session of the user uid may be given.
func (m *Manager) pinDirectory(uid uint32, roots []string, anywhere bool, source string) (*worktree.Directory, error) {
	d, err := m.pins.Pin(uid, source, worktree.Rules{
		Roots: roots, AnyRoot: anywhere, Private: append([]string{filepath.Dir(m.cfg.OutputDir)}, m.cfg.Private...),
	})
	switch {
	case errors.Is(err, worktree.ErrForbidden):
		return nil, &client.Error{Code: client.CodeForbidden, Message: err.Error(), Hint: "the directories that may be used are [worktrees] roots and mounts of the configuration"}
	case errors.Is(err, worktree.ErrInvalidPath):
		return nil, &client.Error{Code: client.CodeInvalidPath, Message: err.Error(), Hint: "give the absolute path of a directory, without symbolic links"}
	case errors.Is(err, worktree.ErrUnresponsive):
		return nil, &client.Error{Code: client.CodeInvalidPath, Message: err.Error(), Hint: "see that the program or the network behind this directory works, or use another directory"}
	}
	return d, err
}
