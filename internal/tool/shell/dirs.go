package shell

import (
	"path"
	"slices"
	"strings"
)

// maxDirs is how many working directories are told apart.
const maxDirs = 4

// dirs are the directories that the shell may be in, each absolute or relative
// to where the command starts ("" is that place). None at all means that the
// place in the text is not reached.
type dirs struct {
	list []string
	lost bool // it may be anywhere
}

func startDirs() dirs { return dirs{list: []string{""}} }

var (
	lostDirs = dirs{lost: true}
	noDirs   = dirs{}
)

// only is the one directory that d is; apart where there are more, or none is known.
func (d dirs) only() (dir string, apart bool) {
	if d.lost || len(d.list) != 1 {
		return "", true
	}
	return d.list[0], false
}

// or is wherever d or e may be.
func (d dirs) or(e dirs) dirs {
	if d.lost || e.lost {
		return lostDirs
	}
	if len(e.list) == 0 || slices.Equal(d.list, e.list) {
		return d
	}
	all := slices.Clone(d.list)
	for _, dir := range e.list {
		if !slices.Contains(all, dir) {
			all = append(all, dir)
		}
	}
	if len(all) > maxDirs {
		return lostDirs
	}
	return dirs{list: all}
}

// enter is d after "cd to". The shell drops ".." together with the name before
// it, links or not, and so does this. From the directory in which the command starts,
// whose own path may have links, no ".." leads to a known place. Nor does one behind a name
// with another name behind it: where there is no such place, bash goes where the kernel
// does, which follows links.
func (d dirs) enter(to string, started bool) dirs {
	if d.lost && !path.IsAbs(to) {
		return lostDirs
	}
	if path.IsAbs(to) {
		if returns(to) {
			return lostDirs
		}
		return dirs{list: []string{path.Clean(to)}}
	}
	out := noDirs
	for _, dir := range d.list {
		if returns(dir + "/" + to) {
			return lostDirs
		}
		next := path.Clean(path.Join(dir, to))
		if next == "." {
			next = ""
		}
		if started && (next == ".." || strings.HasPrefix(next, "../")) {
			return lostDirs
		}
		out = out.or(dirs{list: []string{next}})
	}
	return out
}

// returns reports whether a path goes back from a name and then on to another one.
func returns(p string) bool {
	named, back := false, false
	for part := range strings.SplitSeq(p, "/") {
		switch part {
		case "", ".":
		case "..":
			back = back || named
		default:
			if back {
				return true
			}
			named = true
		}
	}
	return false
}

// names are the paths that name may lead to, as the kernel would follow them;
// nil where that is not known.
func (d dirs) names(name string) []string {
	if path.IsAbs(name) {
		return []string{name}
	}
	if d.lost {
		return nil
	}
	list := make([]string, 0, len(d.list))
	for _, dir := range d.list {
		list = append(list, in(dir, name))
	}
	return list
}

// in is name from dir on, one of dirs.
func in(dir, name string) string {
	switch {
	case dir == "":
		return name
	case strings.HasSuffix(dir, "/"):
		return dir + name
	}
	return dir + "/" + name
}
