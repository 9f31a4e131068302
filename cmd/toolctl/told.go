package main

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/toold/toold/client"
)

// noteWidth is how much fits on one line of a terminal; a note has twice as much at most.
const noteWidth = 90

// maxTold is how many notes are remembered.
const maxTold = 200

// tellNotes prints what the host could not give a session, each once to this user since the host was
// started, and of each daemon, whatever other sessions were told. All of it stays with the session, but for one that nobody can ask for later:
// of that it is said in full.
func tellNotes(a *app, s *client.Session, full bool) {
	if len(s.Notes) == 0 {
		return
	}
	file := toldFile(a)
	text, _ := os.ReadFile(file) // where it cannot be read, a note is said once more
	told := strings.Fields(string(text))
	where := bootID() + "\x00" + a.socketPath() + "\x00"
	said, cut := 0, false
	for _, note := range s.Notes {
		sum := sha256.Sum256([]byte(where + note))
		key := hex.EncodeToString(sum[:8])
		if slices.Contains(told, key) {
			continue
		}
		text := line(note)
		if !full && width(text) > 2*noteWidth { // most are shorter, and end with what to do
			text, cut = clipped(text, 2*noteWidth), true
		}
		a.say("note: %s", text)
		told, said = append(told, key), said+1
	}
	if said == 0 {
		return
	}
	if cut {
		a.say("  said once; toolctl session show %s has it in full", line(s.ID))
	}
	if file != "" && os.MkdirAll(filepath.Dir(file), 0o700) == nil {
		told = told[max(0, len(told)-maxTold):]
		_ = replaceFile(file, strings.NewReader(strings.Join(told, "\n")+"\n"))
	}
}

// bootID is what the kernel calls this run of the host; tests replace it.
var bootID = sync.OnceValue(func() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // where there is none, a note is said once for all
	return string(id)
})

// toldFile remembers which notes this user has been shown, by their digests; "" for a user without a
// home.
func toldFile(a *app) string {
	dir := a.getenv("XDG_STATE_HOME")
	if home := a.getenv("HOME"); dir == "" && filepath.IsAbs(home) {
		if info, err := os.Stat(home); err == nil && info.IsDir() {
			dir = filepath.Join(home, ".local", "state")
		}
	}
	if !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Join(dir, "toold", "told")
}
