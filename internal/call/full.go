package call

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/tool/run"
)

// room is a file system of a session that has a size.
type room struct {
	place string
	size  client.Size
	of    string // the limit that it follows from
}

// rooms are those of the session, the innermost first.
func (t tail) rooms() []room {
	row := t.g.place.Row()
	tmp := row.Limits.Tmp
	all := []room{
		{sandbox.Home, 3 * tmp, "three times limits.tmp"},
		{"/tmp", tmp, "limits.tmp"},
		{"/dev/shm", tmp / 4, "a quarter of limits.tmp"},
	}
	if row.Worktree.Mode == client.WorktreeEmpty {
		all = append(all, room{row.Worktree.Target, tmp, "limits.tmp"})
	}
	if row.Limits.Disk > 0 {
		all = append(all, room{"/", row.Limits.Disk, "limits.disk"})
	}
	return all
}

// noSpace is what programs print when a file system is full: the system's own
// words, which most pass on, and SQLite's.
var noSpace = []string{"no space left on device", "database or disk is full"}

// lastOutput ends the output of a call, and looks at it for what the exit does not say.
func (t tail) lastOutput(o *outcome) output.Cut {
	ct := t.c.out.Finish()
	t.findFull(ct, o)
	return ct
}

// findFull finds out whether a program failed for want of room. That it says so is
// no proof (it may print a log), nor is a place that is full (that may be so for
// long): both together are, or that the place is named in the same line, for what
// was full while it ran and then cleaned up.
func (t tail) findFull(ct output.Cut, o *outcome) {
	if o.exit == nil || !t.c.streams || o.result == nil || o.exit.Code == 0 ||
		o.exit.Reason != run.ReasonExit && o.exit.Reason != run.ReasonSignal {
		return
	}
	line := lastSaying(ct.Head, noSpace)
	if ct.Tail != "" {
		line = cmp.Or(lastSaying(ct.Tail, noSpace), line)
	}
	if line == "" && o.exit.Full == "" {
		return
	}
	rooms := t.rooms()
	full := slices.IndexFunc(rooms, func(r room) bool { return r.place == o.exit.Full })
	if line == "" && (full < 0 || o.exit.Signal != "SIGBUS") {
		if full >= 0 {
			o.notes = append(o.notes, fmt.Sprintf("[%s is full%s]", rooms[full].place, rooms[full]))
		}
		return
	}
	if full < 0 {
		full = slices.IndexFunc(rooms, func(r room) bool { return r.place != "/" && strings.Contains(line, strings.ToLower(r.place)+"/") })
	}
	if full < 0 {
		return // a directory of the host: the program has said all that is known
	}
	r, e := *o.result, *o.exit
	e.Reason, e.Full = run.ReasonDisk, rooms[full].place
	r.Output = run.Trailer(&e, run.TrailerInfo{Room: rooms[full].String()})
	o.result, o.exit = &r, &e
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
