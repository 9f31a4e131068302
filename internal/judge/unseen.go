package judge

import (
	"slices"

	"github.com/toold/toold/internal/policy"
)

// Unseen are the closed mounts that a command which may run must not see, by the rules of this moment.
func (j *Judge) Unseen(m *Judgement) []string {
	if len(m.closed) == 0 {
		return nil
	}
	return j.Rules(m.Profile).Unseen(m.Each, m.closed)
}

// Unseen are the closed mounts that a command must not see. There are some where a path of it is
// only known at run time, and it was not asked about since it is to lead to none: then all of which neither the
// rules let calls use all, nor the command names anything, in them or above them, that it may reach.
func (r *Rules) Unseen(each []Judged, closed []string) []string {
	if !slices.ContainsFunc(each, unasked) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(closed), func(mount string) bool {
		return slices.ContainsFunc(each, func(of Judged) bool { return r.shows(&of, mount) }) || r.open(mount)
	})
}

// unasked reports whether a request is for a path that nobody knows, and allowed since it leads to no mount.
func unasked(r Judged) bool {
	q := &r.Request
	return q.Unknown && q.Confined && r.Action == policy.Allow && (r.Rule == policy.SourceDefault || q.Weak)
}

// Kept are the mounts of the session that a command does not see unless it names them.
func (j *Judge) Kept(profile string) []string {
	row := j.row()
	return slices.DeleteFunc(slices.Clone(row.Closed), j.Rules(profile).open)
}

// shows reports whether a request that is allowed, or approved, is for something of a mount. One for a directory
// above shows what is mounted there too, unless a rule denies that.
func (r *Rules) shows(of *Judged, mount string) bool {
	q := &of.Request
	switch {
	case q.Permission != policy.PermissionExternal || of.Action == policy.Deny:
		return false
	case q.Unknown:
		return !unasked(*of)
	case policy.RelativeTo(mount, q.Path) != "":
		return true
	}
	if policy.RelativeTo(q.Path, mount) == "" || r.stack == nil {
		return false
	}
	v := r.stack.JudgeOne(&policy.Request{Permission: policy.PermissionExternal, Pattern: mount, Path: mount})
	return v.Action != policy.Deny || v.Rule == policy.SourceDefault // which denies where nobody can be asked
}

// open reports whether rules let calls use all of a mount.
func (r *Rules) open(mount string) bool { return r.stack != nil && r.stack.AllowsAll(mount) }

// unconfined are requests, of which none for a path that nobody knows is Confined any more, where the command
// sees a closed mount for something else that it names: the path may lead there then, past the rules for
// what is in it. One that the text does not speak of stays so where the mount itself is named, which is all of
// it to a program that walks through directories; and one that is Matched. nil where nothing changes.
func (r *Rules) unconfined(requests []policy.Request, each []Judged, closed []string) []policy.Request {
	if len(closed) == 0 || !slices.ContainsFunc(each, unasked) {
		return nil
	}
	var strong, weak bool
	for _, mount := range closed {
		named, whole := false, false
		for i := range each {
			q := &each[i].Request
			named = named || !q.Unknown && r.shows(&each[i], mount)
			whole = whole || !q.Unknown && q.Path == mount && r.shows(&each[i], mount)
		}
		if named && !r.open(mount) {
			strong, weak = true, weak || !whole
		}
	}
	if !strong {
		return nil
	}
	free := slices.Clone(requests)
	for i := range free {
		q := &free[i]
		if q.Unknown && !q.Matched && (weak || !q.Weak) {
			q.Confined = false
		}
	}
	return free
}
