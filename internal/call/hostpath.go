package call

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
)

// hostWorktree is where the worktree is on the host, and where it is in the sandbox;
// both are "" where nobody could confuse them.
func hostWorktree(w client.Worktree) (source, target string) {
	if w.Source == "" || w.Source == "/" || w.Source == w.Target {
		return "", ""
	}
	return strings.TrimSuffix(w.Source, "/"), w.Target
}

// translate replaces the host's path of the worktree in the paths of an input, as
// people paste it, by the sandbox's. It does so only where the sandbox has nothing of
// its own at such a path.
func (g *Group) translate(c *Call, inv *tool.Invocation) {
	row := g.place.Row()
	source, target := hostWorktree(row.Worktree)
	if source == "" || !isForeign(&row, source) || !mentions(inv.JSON, source) {
		return
	}
	c.translated = inv.Rebase(source, target)
}

// ownPlaces are directories in which sandboxes have something of their own, whatever
// their root file system is.
var ownPlaces = []string{
	sandbox.Home, "/tmp", "/var/tmp", "/run", "/dev", "/proc", "/sys", "/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64",
}

// isForeign reports whether a path of the host is about nothing that the sandbox has.
func isForeign(row *store.Session, source string) bool {
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

// mentions reports whether path stands in an input, as a whole or as the beginning of
// another.
func mentions(input json.RawMessage, path string) bool {
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

// hostNote tells the model that a path is the host's; "" where the call has nothing to
// do with one.
func (t tail) hostNote(failed bool) string {
	source, target := hostWorktree(t.g.place.Row().Worktree)
	switch {
	case source == "":
	case t.c.translated:
		return fmt.Sprintf("(%s is %s here)", source, target)
	case failed && len(t.c.row.Input) < MaxNote && mentions(t.c.row.Input, source):
		return fmt.Sprintf("(the worktree is %s here; %s is its path on the host)", target, source)
	}
	return ""
}
