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

// room is a file system of a session that has a size.
type room struct {
	place string
	size  client.Size
	of    string // the limit that it follows from
}

// roomsOf are those of a session, the innermost first.
func roomsOf(row *client.Session) []room {
	tmp := row.Limits.Tmp
	all := []room{
		{sandbox.Home, 3 * tmp, "three times limits.tmp"},
		{"/tmp", tmp, "limits.tmp"},
		{"/dev/shm", tmp / 4, "a quarter of limits.tmp"},
	}
	if row.Worktree.Mode == client.WorktreeEmpty {
		all = append(all, room{row.Worktree.Target, tmp, "limits.tmp"})
	}
	if row.Limits.Disk > 0 && row.Worktree.Mode == client.WorktreeOverlay {
		all = append(all, room{row.Worktree.Target, row.Limits.Disk, "limits.disk, which --limit disk= sets"})
	}
	if row.Limits.Disk > 0 {
		all = append(all, room{"/", row.Limits.Disk, "limits.disk"})
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
func Full(exit *run.Exit, head, tail string, row *client.Session) (ended *run.Exit, text string) {
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
	rooms := roomsOf(row)
	full := slices.IndexFunc(rooms, func(r room) bool { return r.place == exit.Full })
	if line == "" && (full < 0 || exit.Signal != "SIGBUS") {
		if full >= 0 {
			text = fmt.Sprintf("[%s is full%s]", rooms[full].place, rooms[full])
		}
		return nil, text
	}
	if full < 0 {
		full = slices.IndexFunc(rooms, func(r room) bool { return r.place != "/" && strings.Contains(line, strings.ToLower(r.place)+"/") })
	}
	if full < 0 {
		return nil, "" // a directory of the host: the program has said all that is known
	}
	e := *exit
	e.Reason, e.Full = run.ReasonDisk, rooms[full].place
	return &e, run.Trailer(&e, run.TrailerInfo{Room: rooms[full].String()})
}

// String is how large the room is, and where more of it comes from.
func (r room) String() string {
	if r.size == 0 {
		return ""
	}
	return fmt.Sprintf(" (%s, %s)", r.size, r.of)
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
