package remark

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/tool/run"
)

// Room is a file system that a session writes to.
type Room struct {
	Place string
	Size  client.Size // 0 = it is the host's
	Of    string      // what the size follows from
	Raise string      // the limit that makes it larger, or a setting: "[[cache]] size"
}

// roomsOf are those of a session, the innermost first. homeDisk says where the home directory
// lies.
func roomsOf(row *client.Session, homeDisk bool) []Room {
	l, w := &row.Limits, &row.Worktree
	tmp := Room{"/tmp", l.Tmp, "limits.tmp", "tmp"}
	home := Room{sandbox.Home, 3 * l.Tmp, "three times limits.tmp", "tmp"}
	shm := Room{"/dev/shm", l.Tmp / 4, "a quarter of limits.tmp", "tmp"}
	if homeDisk {
		home = Room{sandbox.Home, l.Disk, "limits.disk", "disk"}
		if most := l.Memory / 8; most > 0 && l.Tmp > most { // they share the disk
			shm = Room{"/dev/shm", most / 4, "a 32nd of limits.memory", "memory"}
			tmp.Size += l.Disk
			if w.Mode == client.WorktreeEmpty {
				tmp.Size += l.Tmp
			}
			tmp.Of = "limits.disk and limits.tmp together"
			home.Size, home.Of = tmp.Size, tmp.Of
		}
	}
	tree := Room{w.Target, 0, "a directory of the host, whose disk is full", ""}
	switch {
	case w.Mode == client.WorktreeEmpty:
		tree = Room{w.Target, tmp.Size, tmp.Of, tmp.Raise}
	case w.Mode == client.WorktreeOverlay && l.Disk > 0:
		tree = Room{w.Target, l.Disk, "limits.disk", "disk"}
	}
	all := []Room{home, tmp, shm, tree}
	if l.Disk > 0 {
		all = append(all, Room{"/", l.Disk, "limits.disk", "disk"})
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
// was full while it ran and then cleaned up.
func Full(exit *run.Exit, head, tail string, row *client.Session, homeDisk bool, more ...Room) (ended *run.Exit, text string) {
	if exit.Code == 0 || exit.Reason != run.ReasonExit && exit.Reason != run.ReasonSignal {
		return nil, ""
	}
	line := lastSaying(head, noSpace)
	if tail != "" {
		line = cmp.Or(lastSaying(tail, noSpace), line)
	}
	if line == "" && exit.Full == "" {
		return nil, ""
	}
	rooms := append(more, roomsOf(row, homeDisk)...)
	full := slices.IndexFunc(rooms, func(r Room) bool { return r.Place == exit.Full })
	if line == "" && (full < 0 || exit.Signal != "SIGBUS") {
		if full >= 0 {
			text = fmt.Sprintf("[%s is full%s]", rooms[full].Place, rooms[full])
		}
		return nil, text
	}
	// Places may share a disk; the one that is named is meant.
	named := slices.IndexFunc(rooms, func(r Room) bool { return r.Place != "/" && strings.Contains(line, strings.ToLower(r.Place)+"/") })
	if named >= 0 && (full < 0 || rooms[named].Size == rooms[full].Size) {
		full = named
	}
	if full < 0 {
		return nil, "" // a directory of the host: the program has said all that is known
	}
	e := *exit
	e.Reason, e.Full, e.Raise = run.ReasonDisk, rooms[full].Place, rooms[full].Raise
	return &e, run.Trailer(&e, run.TrailerInfo{Room: rooms[full].String()})
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
