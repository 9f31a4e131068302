// Package state keeps the records that drivers write, so that the next daemon finds their
// sandboxes again. Each sandbox has a directory with the session's name. The record in it
// is written before anything else is made, and removed after everything else. Labels on
// containers say the same.
//
// Daemons of earlier and later versions read these records too. The names of files,
// fields and labels never change.
package state

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/toold/toold/internal/sandbox"
)

// Base holds what every driver records. The record of a driver embeds it.
type Base struct {
	sandbox.Record
	// BootID differs after a reboot; then the pid means nothing.
	BootID string
	Notes  []string
	IDMap  string
}

// Record is a driver's record: a pointer to a struct that embeds Base.
type Record interface{ base() *Base }

func (b *Base) base() *Base { return b }

// Begin makes the record of a sandbox that is about to be made.
func Begin(id sandbox.ID, runtime string) Base {
	return Base{Record: sandbox.Record{ID: id, Runtime: runtime}, BootID: BootID()}
}

// Lives checks that the record is of the sandbox that asked names, and that its process
// may still run on this host. The error is sandbox.ErrGone if not.
func (b *Base) Lives(asked *sandbox.ID) error {
	switch {
	case !b.Same(asked):
		return fmt.Errorf("the name is taken by another: %w", sandbox.ErrGone)
	case b.BootID != BootID():
		return fmt.Errorf("the host was restarted: %w", sandbox.ErrGone)
	case b.PID == 0:
		return fmt.Errorf("it was never finished: %w", sandbox.ErrGone)
	}
	return nil
}

// BootID gives the kernel's random id of this boot, "" if it cannot be read.
func BootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$`)

// IsName reports whether s can name a sandbox. Such a name is safe as the name of a file
// or a container, and as an argument.
func IsName(s string) bool { return name.MatchString(s) }
