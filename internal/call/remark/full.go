package remark

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/inside"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool/run"
)

// Room is a file system that a session writes to.
type Room struct {
	Place string
	Size  client.Size // 0 = it is the host's
	Of    string      // what the size follows from
	Raise string      // the limit that makes it larger, or a setting: "[[cache]] size"
	// Disk has it together with other places, "" for a file system of its own.
	Disk string
}

// roomsOf are those of a session, the innermost first.
func roomsOf(row *store.Session) []Room {
	l, w := &row.Limits, &row.Worktree
	sizes, disk, err := inside.SizeTmpfs(*l, &sandbox.Worktree{Mode: w.Mode, Target: w.Target}, row.HomeDisk)
	if err != nil {
		return nil // no session has such limits
	}
	of := map[string]string{"/tmp": "limits.tmp", sandbox.Home: "three times limits.tmp", w.Target: "limits.tmp"}
	if l.Tmp == 0 {
		of["/tmp"], of[sandbox.Home] = "an eighth of limits.memory at most", "three times as much as /tmp"
		of[w.Target] = of["/tmp"]
	}
	if of[shared] = "half of limits.memory"; sizes.Home > 0 {
		of[shared] += " at most"
	}
	onDisk := "limits.disk"
	switch {
	case len(disk.Places) > 1 && l.Tmp > 0:
		onDisk = "limits.disk and limits.tmp together"
	case len(disk.Places) > 1:
		onDisk = "limits.disk for /tmp and the home directory together"
	}
	all := cachesOf(row)
	for _, p := range disk.Places {
		all = append(all, Room{p.Target, disk.Size, onDisk, "disk", "home"})
	}
	for _, m := range sizes.Memories(w.Target) {
		raise := "tmp"
		if m.Target == shared {
			raise = "memory"
		}
		all = append(all, Room{m.Target, m.Size, of[m.Target], raise, ""})
	}
	switch {
	case w.Mode == client.WorktreeEmpty: // it is among them
	case w.Mode == client.WorktreeOverlay && l.Disk > 0:
		all = append(all, Room{w.Target, l.Disk, "limits.disk", "disk", ""})
	default:
		all = append(all, Room{w.Target, 0, "a directory of the host, whose disk is full", "", ""})
	}
	if l.Disk > 0 {
		all = append(all, Room{"/", l.Disk, "limits.disk", "disk", ""})
	}
	// A name that has another one in it comes first: /home/tool/tmp/x is no file of /tmp.
	slices.SortStableFunc(all, func(a, b Room) int { return len(b.Place) - len(a.Place) })
	return all
}

// cachesOf are the places of a session's caches that have a bound.
func cachesOf(row *store.Session) (all []Room) {
	for _, c := range row.CachePlaces {
		room := Room{Place: c.Target, Size: c.Size, Of: "the size of the cache " + c.Cache, Raise: "[[cache]] size"}
		if c.Cache == "" {
			room.Of, room.Raise = "limits.disk", "disk"
		}
		all = append(all, room)
	}
	return all
}

// Sizes says how much the places hold that programs of a session write to, those of one disk together. root says
// that they write to / too.
func Sizes(row *store.Session, root bool) (all []string) {
	rooms := roomsOf(row)
	for i, r := range rooms {
		together := func(o Room) bool { return o == r || r.Disk != "" && o.Disk == r.Disk }
		if r.Size == 0 || r.Place == "/" && !root || slices.IndexFunc(rooms, together) < i {
			continue
		}
		var places []string
		for _, o := range rooms[i:] {
			if together(o) {
				places = append(places, o.Place)
			}
		}
		words := fmt.Sprintf("%s in %s", r.Size, plain.Enumerate(places))
		if len(places) > 1 {
			words += " together"
		}
		all = append(all, words)
	}
	return all
}

// noSpace is what programs print when a file system is full: the system's own
// words, which most pass on, and SQLite's.
var noSpace = []string{"no space left on device", "database or disk is full"}

// Full finds out whether a program of a session failed for want of room, from the head and the
// tail of its output. It gives how the program ended then, with the last lines of its output;
// or no end but a note, or neither. That it says so is
// no proof (it may print a log), nor is a place that is full (that may be so for
// long): both together are, or that the place is named in the same line, for what
// was full while it ran and then cleaned up. A program that has not failed, as far as its exit code
// says (that of a pipe is its last command's), has a note at most.
func Full(exit *run.Exit, head, tail string, row *store.Session) (ended *run.Exit, text string) {
	if exit.Reason != run.ReasonExit && exit.Reason != run.ReasonSignal {
		return nil, ""
	}
	line := lastSaying(head, noSpace)
	if tail != "" {
		line = cmp.Or(lastSaying(tail, noSpace), line)
	}
	bus := exit.Signal == "SIGBUS"
	if line == "" && exit.Full == "" && !bus {
		return nil, ""
	}
	rooms := roomsOf(row)
	full := slices.IndexFunc(rooms, func(r Room) bool { return r.Place == exit.Full })
	// Places may share a disk; the one that is named is meant.
	named := slices.IndexFunc(rooms, func(r Room) bool { return r.Place != "/" && strings.Contains(line, strings.ToLower(r.Place)+"/") })
	if named >= 0 && (full < 0 || rooms[named].Size == rooms[full].Size) {
		full = named
	}
	failed := exit.Code != 0 && (line != "" || bus)
	switch {
	case failed && full >= 0:
	case full >= 0 && exit.Full != "":
		return nil, fmt.Sprintf("[%s is full%s]", rooms[full].Place, rooms[full])
	case full >= 0:
		return nil, fmt.Sprintf("[the output says that no space was left in %s%s]", rooms[full].Place, rooms[full])
	case bus:
		return nil, busNote(rooms)
	default:
		return nil, "" // a directory of the host: the program has said all that is known
	}
	e := *exit
	e.Reason, e.Full, e.Raise = run.ReasonDisk, rooms[full].Place, rooms[full].Raise
	if e.Full == shared {
		e.Reason = run.ReasonMemory // which it is a part of
	}
	return &e, run.Trailer(&e, run.TrailerInfo{Room: rooms[full].String()})
}

// shared is where programs that share memory have it.
const shared = "/dev/shm"

// busNote is what a SIGBUS mostly means, where nothing is full any more.
func busNote(rooms []Room) string {
	i := slices.IndexFunc(rooms, func(r Room) bool { return r.Place == shared })
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("[SIGBUS comes where a file that is mapped to memory has no room, or has been cut: %s has %s, %s, which --limit %s= sets]",
		shared, rooms[i].Size, rooms[i].Of, rooms[i].Raise)
}

// String is how large the room is, and where more of it comes from.
func (r Room) String() string {
	if r.Size == 0 {
		return " (" + r.Of + ")"
	}
	if strings.HasPrefix(r.Raise, "[") {
		return fmt.Sprintf(" (%s, %s, which %s in config.toml sets)", r.Size, r.Of, r.Raise)
	}
	return fmt.Sprintf(" (%s, %s, which --limit %s= sets)", r.Size, r.Of, r.Raise)
}

// lastSaying is the last line of text, in small letters, that has one of these words.
// It looks at no more than the end of a long text.
func lastSaying(text string, words []string) string {
	text = strings.ToLower(text[max(0, len(text)-16<<10):])
	at := -1
	for _, w := range words {
		at = max(at, strings.LastIndex(text, w))
	}
	if at < 0 {
		return ""
	}
	begin := strings.LastIndexByte(text[:at], '\n') + 1
	end := strings.IndexByte(text[at:], '\n')
	if end < 0 {
		return text[begin:]
	}
	return text[begin : at+end]
}
