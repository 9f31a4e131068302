package remark

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/toold/toold/internal/plain"
)

// refused finds the lines of programs that were not let to a file.
var refused = regexp.MustCompile(`(?im)^.*(permission denied|EACCES|PermissionError).*$`)

// word is what may be a path in such a line.
var word = regexp.MustCompile("[^\\s'\"`:;,()‘’“”\\[\\]]+")

// Unseen is what to say where text, what a command has printed, may be about one of the mounts
// that were kept from it; else "".
func Unseen(mounts []string, text ...string) string {
	var about []string
	for _, t := range text {
		for _, line := range refused.FindAllString(t, -1) {
			words := word.FindAllString(line, -1)
			for _, m := range mounts {
				if !slices.Contains(about, m) && slices.ContainsFunc(words, func(w string) bool { return leads(w, m) }) {
					about = append(about, m)
				}
			}
		}
	}
	if len(about) == 0 {
		return ""
	}
	return "(" + names(about) + " " + isOrAre(about) + " mounted in this session, and kept from a command that does not say itself that it goes there. " +
		"Write the path as an argument, such as cat " + plain.Name(about[0]+"/FILE") + ": then the rules decide, or somebody is asked)"
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
	return names(mounts) + " " + isOrAre(mounts) + " mounted too. A command sees one only if a path there is an argument of it, which the rules then judge or a user is asked about; all else that programs open there is `Permission denied`."
}

func names(mounts []string) string {
	all := make([]string, len(mounts))
	for i, m := range mounts {
		all[i] = plain.Name(m)
	}
	return strings.Join(all, ", ")
}

func isOrAre(mounts []string) string {
	if len(mounts) == 1 {
		return "is"
	}
	return "are"
}
