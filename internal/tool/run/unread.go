package run

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/readrule"
)

// unread counts what an answer leaves out because of rules.
type unread struct {
	rules *readrule.Rules // nil: nothing is left out
	least bool            // there may be more
	left  map[ruling]*leftOut
}

// ruling is what Judge says.
type ruling struct{ action, source string }

// leftOut counts what an answer leaves out for one reason.
type leftOut struct {
	count int
	names []string // the first maxLeftOut by name
}

// maxLeftOut is how many files are named that could be asked for.
const maxLeftOut = 20

// unreadOf reads the rules out of a tool's settings.
func unreadOf(env *Env) (*unread, error) {
	settings, err := settingsOf[struct {
		Rules *readrule.Rules `json:"read_rules"`
	}](env)
	if err == nil && settings.Rules != nil {
		settings.Rules.Compile()
	}
	return &unread{rules: settings.Rules}, err
}

// may reports whether there may be a rule about the file at path.
func (u *unread) may(path string) bool {
	return u != nil && u.rules != nil && u.rules.MayHide(path, nil)
}

// hides reports whether the content of the file at path must not be shown.
func (u *unread) hides(path string) bool {
	if !u.may(path) {
		return false
	}
	action, _ := u.rules.Judge(path)
	return action != readrule.Allow
}

// hidesName reports whether not even its name may be shown, and counts it then.
// What could be asked for is named, or nobody could ask for it.
func (u *unread) hidesName(path string) bool {
	if !u.may(path) {
		return false
	}
	action, _ := u.rules.Judge(path)
	if action == readrule.Deny {
		u.count(path)
	}
	return action == readrule.Deny
}

// count counts a file that is left out.
func (u *unread) count(path string) {
	var r ruling
	r.action, r.source = u.rules.Judge(path)
	l := u.left[r]
	if l == nil {
		if u.left == nil {
			u.left = make(map[ruling]*leftOut)
		}
		l = &leftOut{}
		u.left[r] = l
	}
	if r.action == readrule.Deny {
		l.count++ // not even its name is shown
		return
	}
	l.add(path)
}

// add counts one more.
func (l *leftOut) add(name string) {
	l.count++
	at, _ := slices.BinarySearch(l.names, name)
	if l.names = slices.Insert(l.names, at, name); len(l.names) > maxLeftOut {
		l.names = l.names[:maxLeftOut]
	}
}

// shown are the names, and how many more there are.
func (l *leftOut) shown() string {
	names := make([]string, len(l.names))
	for i, p := range l.names {
		names[i] = plain.Name(p)
	}
	if n := l.count - len(names); n > 0 {
		names = append(names, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(names, ", ")
}

// note says at the end of an answer what was left out: "3 files not searched".
// least: there may be more.
func (u *unread) note(b *strings.Builder, meta map[string]any, least bool, one, many string) {
	if u == nil || len(u.left) == 0 {
		return
	}
	total := 0
	byText := func(a, b ruling) int {
		return cmp.Or(-cmp.Compare(a.action, b.action), cmp.Compare(a.source, b.source))
	}
	for _, r := range slices.SortedFunc(maps.Keys(u.left), byText) {
		l := u.left[r]
		total += l.count
		count, them := fmt.Sprintf("%d %s", l.count, many), "them"
		if l.count == 1 {
			count, them = "1 "+one, "it"
		}
		if least || u.least {
			count = "at least " + count
		}
		if r.action == readrule.Deny {
			fmt.Fprintf(b, "\n(%s: read denies %s (%s).)\n", count, them, r.source)
			continue
		}
		fmt.Fprintf(b, "\n(%s: to read %s is asked about (%s): %s. Call read to ask.)\n", count, them, r.source, l.shown())
	}
	meta["left_out"] = total
}
