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
	key   string          // of the rules in the settings; "" is readRules
	next  string          // what asks about one that is left out; "" is for tools of a model
	left  map[ruling]*plain.Names
}

// ruling is what Judge says.
type ruling struct{ action, source string }

// unreadOf reads the rules out of a tool's settings.
func unreadOf(env *Env) (*unread, error) {
	read, _, err := rulesOf(env)
	return read, err
}

// rulesOf is unreadOf for a tool that also changes files which its call does not name:
// uneditable counts those that it leaves alone.
func rulesOf(env *Env) (unreadable, uneditable *unread, err error) {
	settings, err := settingsOf[struct {
		Read *readrule.Rules `json:"read_rules"`
		Edit *readrule.Rules `json:"edit_rules"`
	}](env)
	for _, r := range []*readrule.Rules{settings.Read, settings.Edit} {
		if err == nil && r != nil {
			r.Compile()
		}
	}
	return &unread{rules: settings.Read}, &unread{rules: settings.Edit, key: editRules, next: oneByOne}, err
}

// may reports whether there may be a rule about the file at path.
func (u *unread) may(path string) bool {
	return u != nil && u.rules != nil && u.rules.MayHide(path, nil)
}

// Keys of rules in the settings: what they are about, and how answers name that, stands
// before the first _.
const (
	readRules = "read_rules"
	editRules = "edit_rules"
)

// oneByOne is what asks about entries of a tree.
const oneByOne = "Copy them one by one to ask."

// judge says what the rules say of the file at path.
func (u *unread) judge(path string) (action, source string) {
	if !u.may(path) {
		return readrule.Allow, ""
	}
	return u.rules.Judge(path)
}

// hides reports whether the content of the file at path must not be shown.
func (u *unread) hides(path string) bool {
	action, _ := u.judge(path)
	return action != readrule.Allow
}

// hidesName reports whether not even its name may be shown, and counts it then.
// What could be asked for is named, or nobody could ask for it.
func (u *unread) hidesName(path string) bool {
	action, _ := u.judge(path)
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
			u.left = make(map[ruling]*plain.Names)
		}
		l = &plain.Names{}
		u.left[r] = l
	}
	if r.action == readrule.Deny {
		l.N++ // not even its name is shown
		return
	}
	l.Add(path)
}

// note says at the end of an answer what was left out: "3 files not searched".
// least: there may be more.
func (u *unread) note(b *strings.Builder, meta map[string]any, least bool, one, many string) {
	if u == nil || len(u.left) == 0 {
		return
	}
	total, verb, next := 0, cmp.Or(u.key, readRules), cmp.Or(u.next, "Call read to ask.")
	verb, _, _ = strings.Cut(verb, "_")
	byText := func(a, b ruling) int {
		return cmp.Or(-cmp.Compare(a.action, b.action), cmp.Compare(a.source, b.source))
	}
	for _, r := range slices.SortedFunc(maps.Keys(u.left), byText) {
		l := u.left[r]
		total += l.N
		count, them := plain.Count(l.N, one, many), "them"
		if l.N == 1 {
			them = "it"
		}
		if least || u.least {
			count = "at least " + count
		}
		if r.action == readrule.Deny {
			fmt.Fprintf(b, "\n(%s: %s denies %s (%s).)\n", count, verb, them, r.source)
			continue
		}
		fmt.Fprintf(b, "\n(%s: to %s %s is asked about (%s): %s. %s)\n", count, verb, them, r.source, l, next)
	}
	meta["left_out"] = total
}
