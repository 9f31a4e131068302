// Package remark finds what is to be said beside an output that its program could not know: a
// place was full, there is no network here, a path is the host's.
package remark

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
)

// HostWorktree is where the worktree is on the host, and where it is in the sandbox;
// both are "" where nobody could confuse them.
func HostWorktree(w client.Worktree) (source, target string) {
	if w.Source == "" || w.Source == "/" || w.Source == w.Target {
		return "", ""
	}
	return strings.TrimSuffix(w.Source, "/"), w.Target
}

// ownPlaces are directories in which sandboxes have something of their own, whatever
// their root file system is.
var ownPlaces = []string{
	sandbox.Home, "/tmp", "/var/tmp", "/run", "/dev", "/proc", "/sys", "/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64",
}

// Foreign reports whether a path of the host is about nothing that the sandbox has.
func Foreign(row *client.Session, source string) bool {
	places := append([]string{row.Worktree.Target}, ownPlaces...)
	for _, m := range row.Mounts {
		places = append(places, m.Target)
	}
	for _, p := range places {
		if p = strings.TrimSuffix(p, "/"); source == p || strings.HasPrefix(source, p+"/") || strings.HasPrefix(p, source+"/") {
			return false
		}
	}
	return true
}

// Mentions reports whether path stands in an input, as a whole or as the beginning of
// another.
func Mentions(input json.RawMessage, path string) bool {
	quoted, err := json.Marshal(path)
	if err != nil {
		return false
	}
	text := bytes.Trim(quoted, `"`)
	for rest := []byte(input); ; {
		i := bytes.Index(rest, text)
		if i < 0 {
			return false
		}
		if rest = rest[i+len(text):]; len(rest) == 0 || !isNameByte(rest[0]) {
			return true
		}
	}
}

// isNameByte reports whether b goes on with a name.
func isNameByte(b byte) bool {
	return b == '-' || b == '_' || b == '.' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= 0x80
}
