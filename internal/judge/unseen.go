package judge

import (
	"slices"

	"github.com/toold/toold/internal/policy"
)

// Unseen are the closed mounts that a command which may run must not see: those of which neither the
// rules of this moment let calls use all, nor the command names anything, in them or above them, that it may
// reach. One that was approved although nobody knows which path it means sees all of them.
//
// What the text of a command says is not all that it can reach: a program opens what it
// likes. So a text that names no mount is not asked about one, and reaches none.
func (j *Judge) Unseen(m *Judgement) []string {
	if len(m.closed) == 0 {
		return nil
	}
	rules := j.Rules(m.Profile)
	return slices.DeleteFunc(slices.Clone(m.closed), func(mount string) bool {
		return slices.ContainsFunc(m.Each, func(r Judged) bool { return rules.shows(&r, mount) }) || rules.open(mount)
	})
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
		return !q.Confined || of.Rule != policy.SourceDefault
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

// unconfine takes back that a path which nobody knows leads to no mount, where the command sees one for something
// else that it names: then it may lead there, past the rules for what is in it. It reports whether there was any.
func (m *Judgement) unconfine() (some bool) {
	named := slices.ContainsFunc(m.closed, func(mount string) bool {
		return !m.Rules.open(mount) && slices.ContainsFunc(m.Each, func(r Judged) bool { return !r.Request.Unknown && m.Rules.shows(&r, mount) })
	})
	if !named {
		return false
	}
	m.requests = slices.Clone(m.requests)
	for i := range m.requests {
		q := &m.requests[i]
		some = some || q.Unknown && q.Confined
		q.Confined = q.Confined && !q.Unknown
	}
	return some
}
