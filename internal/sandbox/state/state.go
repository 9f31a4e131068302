// Package state is what drivers write down about their sandboxes, so that another
// daemon finds them again: of each a directory named for its session, with a record in
// it that is there before anything else and goes after everything else, and labels that
// say the same where a runtime or an Engine keeps them.
//
// A daemon of an earlier or a later version reads it too. Names of files, fields and
// labels stay as they are.
package state

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/toold/toold/internal/sandbox"
)

// Base is what each driver keeps of a sandbox; the record of a driver embeds it.
type Base struct {
	sandbox.Record
	// BootID tells a record of before a reboot, whose pid means nothing.
	BootID string
	Notes  []string
	IDMap  string
}

// Record is a driver's record: a pointer to a struct that embeds Base.
type Record interface{ base() *Base }

func (b *Base) base() *Base { return b }

// Begin is the record of a sandbox that is about to be made.
func Begin(id sandbox.ID, runtime string) Base {
	return Base{Record: sandbox.Record{ID: id, Runtime: runtime}, BootID: BootID()}
}

// Lives says whether a process of this host may still be the sandbox that is asked for.
// The error is sandbox.ErrGone where it is not.
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

// BootID is the kernel's name for the time since the host was started, "" where it
// cannot be read.
func BootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$`)

// IsName says whether a text can be the name of a sandbox: one that is a file's name,
// an option's value and a container's name as it stands.
func IsName(s string) bool { return name.MatchString(s) }
