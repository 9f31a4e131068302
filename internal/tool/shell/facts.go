package shell

import (
	"fmt"
	"slices"
)

// facts are what a text says in one place and what matters in another, whichever
// of them comes first. Scripts inside of the text share its facts.
type facts struct {
	// arrays: it has an array, or what may make one.
	arrays bool
	// list is an argument of declare or its like whose value may be a list of an
	// array's elements; "" for none.
	list string

	// fed: the shell itself is given other input, and with it what runs from there on.
	fed bool

	// bashes are the scripts that run a bash.
	bashes []*scope

	// astray: it sets a variable by which the shell finds directories, so that what it says of them does not hold.
	astray bool

	// evaluated: a file or a text was run in the shell itself, which may have changed the directory.
	evaluated bool

	// twice counts the scripts that are read in two ways.
	twice int

	// files are the descriptors that are redirected from files, copies those that
	// are redirected from others.
	files  []int
	copies []redirected
	// links are words that may be the names of links. Of one that is among them the bit in linked is set that its sum says:
	// most words need no look through the list, which takes 9 % of the scan of a long text (BenchmarkScan).
	links  []Link
	linked [8]uint64
	// opened are the files by which descriptors are opened again.
	opened []reopened
}

// link notes a word that may be the name of a link.
func (f *facts) link(text, dir, value string) {
	if len(f.links) > maxPaths {
		return
	}
	sum := uint32(len(dir))
	for i := range len(value) {
		sum = sum*31 + uint32(value[i])
	}
	l := Link{Text: text, Name: in(dir, value)}
	if word, bit := &f.linked[sum/64%uint32(len(f.linked))], uint64(1)<<(sum%64); *word&bit == 0 {
		*word |= bit
	} else if slices.ContainsFunc(f.links, func(o Link) bool { return o.Name == l.Name }) {
		return
	}
	f.links = append(f.links, l)
}

// scope is what is known of one script, and of those that it is in.
type scope struct {
	around *scope
	// connected: a redirection may be of a connection. A bash that it runs, or that a script in it runs, takes itself for
	// the first shell then, as the last command of another does, and runs its start-up file.
	connected bool
}

func (s *scope) isConnected() bool {
	for ; s != nil; s = s.around {
		if s.connected {
			return true
		}
	}
	return false
}

// redirected is a descriptor that is made a copy of another one.
type redirected struct{ to, from int }

// reopened is a file such as /dev/stdout that is written to.
type reopened struct {
	descriptor int
	text       string // as the file is written
}

// duplicate notes that the descriptor to becomes a copy of from.
func (f *facts) duplicate(to, from int) {
	f.copies = append(f.copies, redirected{to, from})
}

// fromFile are the descriptors that may be those of files which are read.
func (f *facts) fromFile() map[int]bool {
	files := make(map[int]bool)
	for _, n := range f.files {
		files[n] = true
	}
	for grown := true; grown; {
		grown = false
		for _, r := range f.copies {
			if files[r.from] && !files[r.to] {
				files[r.to], grown = true, true
			}
		}
	}
	return files
}

// linked lists links, as far as there is room for them. One path that cannot be resolved stands for all others.
func (f *findings) linked(links []Link) {
	room := maxPaths
	for _, list := range [][]Path{f.out.Paths, f.out.Writes} {
		for i := range list {
			if list[i].Name != "" {
				room--
			}
		}
	}
	if room = max(room, 0); len(links) > room {
		links = links[:room]
		f.path(Path{Text: fmt.Sprintf("more than %d words", maxPaths), Weak: true}, false)
	}
	f.out.Links = links
}

// conclude judges what is only known at the end of the text.
func (f *findings) conclude() {
	all := f.facts
	if all.arrays && all.list != "" {
		f.opaque("%s may be a list for an array, which is expanded again", shorten(all.list))
	}
	if slices.ContainsFunc(all.bashes, (*scope).isConnected) {
		f.opaque("bash may run its start-up file first, with a connection as its input")
	}
	if all.fed {
		for i := range f.out.Commands {
			f.out.Commands[i].Apart = true
		}
	}
	f.linked(all.links)
	if len(all.opened) == 0 {
		return
	}
	files := all.fromFile()
	for _, r := range all.opened {
		if files[r.descriptor] {
			// It is opened for writing by the name of its descriptor.
			f.path(Path{Text: r.text}, true)
		}
	}
}
