package remark

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/toold/toold/internal/plain"
)

// refused finds the lines of programs that were not let to a file.
var refused = regexp.MustCompile(`(?im)^.*(permission denied|EACCES|PermissionError|cross-device).*$`)

// word is what may be a path in such a line.
var word = regexp.MustCompile("[^\\s'\"`:;,()‘’“”\\[\\]]+")

// Unseen is what to say where text, what a command has printed, may be about one of the mounts
// that were kept from it; else "".
func Unseen(mounts []string, text ...string) string {
	var about []string
	relative := false // a program was not let to something that no path from the root names
	for _, t := range text {
		for _, line := range refused.FindAllString(t, -1) {
			words := word.FindAllString(line, -1)
			relative = relative || !slices.ContainsFunc(words[1:], path.IsAbs) // the first one is the program's name
			for _, m := range mounts {
				if !slices.Contains(about, m) && slices.ContainsFunc(words, func(w string) bool { return leads(w, m) }) {
					about = append(about, m)
				}
			}
		}
	}
	begins := "("
	switch {
	case len(about) > 0:
	case relative:
		about, begins = mounts, "(If it leads there: "
	default:
		return ""
	}
	allow := plain.Name(about[0])
	return begins + plain.EnumerateNames(about) + " " + isOrAre(about) + " mounted in this session, and kept from a command of which a path is only known at run time. Write its paths out, " +
		"or have a user allow " + allow + " and " + allow + "/* in external_directory)"
}

// leads reports whether a path that a program printed is in a mount, or a directory above it. One that does
// not begin at the root is the worktree's, for all that is known.
func leads(p, mount string) bool {
	if !path.IsAbs(p) {
		return false
	}
	p = path.Clean(p)
	return p == mount || strings.HasPrefix(p, mount+"/") || strings.HasPrefix(mount+"/", strings.TrimSuffix(p, "/")+"/")
}

// KeptWords says in a brief which mounts a command sees only if it names them; "" for none.
func KeptWords(mounts []string) string {
	if len(mounts) == 0 {
		return ""
	}
	return plain.EnumerateNames(mounts) + " " + isOrAre(mounts) + " mounted too. A command of which a path is only known at run time (`cat $f`, `xargs cat`) does not see what is there: write such paths out."
}

func isOrAre(mounts []string) string {
	if len(mounts) == 1 {
		return "is"
	}
	return "are"
}
