package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/toold/toold/internal/sandbox/state"
)

// ownerFile holds the random part of a daemon's name, in its state directory.
const ownerFile = "owner"

var ownerForm = regexp.MustCompile(`^[0-9A-Z]{26}$`)

// ownerOf names the daemon of a state directory on everything that it makes, so
// that two daemons leave each other's sessions alone. The directory's path tells
// them apart on a host, also when one directory is a copy of the other; the random
// part that is kept in it does where they share an Engine from different hosts, or
// cgroups from different mount namespaces, and all have the usual path.
func ownerOf(stateDir string) (string, error) {
	real, err := filepath.EvalSymlinks(stateDir)
	if err != nil {
		return "", err
	}
	file := filepath.Join(real, ownerFile)
	part, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		part = []byte(rand.Text())
		err = state.Dir{Path: real, Sync: true}.Keep(ownerFile, func(w io.Writer) error {
			_, err := w.Write(part)
			return err
		})
	}
	if err != nil {
		return "", fmt.Errorf("name of the daemon: %w", err)
	}
	if !ownerForm.Match(part) {
		return "", fmt.Errorf("name of the daemon: %s is damaged: restore it from a backup; if no session is live, remove it", file)
	}
	sum := sha256.Sum256([]byte(real + "\x00" + string(part)))
	return hex.EncodeToString(sum[:8]), nil
}
