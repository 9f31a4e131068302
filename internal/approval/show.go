package approval

import (
	"fmt"
	"slices"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/shell"
)

// Bounds of what an approval shows. Events carry it, so it must not be large; the
// whole input is in the call, and its hash in the approval.
const (
	MaxShownText     = 16 << 10 // bytes of a command, a diff or an input
	MaxShownRequests = 100
	MaxShownPattern  = 4 << 10
)

// Describe fills in what an approver sees of a call.
func Describe(row *store.Approval, j *judge.Judgement) {
	d := &shownText{meta: make(map[string]any)}
	row.Metadata = d.meta
	row.Requests = []client.ApprovalRequest{}
	asked := shownOf(j)
	for i, r := range asked {
		if i == MaxShownRequests {
			d.meta["requests_left_out"] = len(asked) - i
			d.meta["truncated"] = true
			break
		}
		v := client.ApprovalRequest{Permission: r.Request.Permission, Pattern: r.Request.Pattern, Rule: r.Rule, Save: r.Request.Save}
		if r.Request.Path != "" {
			v.Pattern = r.Request.Path
		}
		if r.Rule == j.Verdict.Rule {
			v.Reason = j.Verdict.Reason
		}
		if r.Request.Why != "" {
			v.Reason = policy.Join(v.Reason, "it cannot be judged by its parts: "+shell.Visible(r.Request.Why))
		}
		if hint := j.MountHint(&asked[i]); hint != "" {
			v.Reason = policy.Join(v.Reason, hint)
		}
		v.Pattern = d.shortened(v.Pattern, MaxShownPattern)
		row.Requests = append(row.Requests, v)
	}
	whole := false
	if in, ok := j.Inv.Input.(tool.Visible); ok {
		var parts map[string]string
		parts, whole = in.Shown()
		for name, text := range parts {
			d.text(name, text)
		}
	}
	if !whole && (j.Prep == nil || j.Prep.Diff == "") {
		d.text("input", string(j.Inv.JSON))
	}
	if j.Prep != nil {
		d.text("diff", j.Prep.Diff)
	}
	if len(row.Env) > 0 {
		slices.Sort(row.Env)
		d.meta["env"] = row.Env
	}
	if j.Loop != nil {
		d.meta["loop"] = j.Loop.Describe(j.Inv.Tool.Name)
	}
}

// Shown is the approval as people see it, or as an agent does, the holder of a session's token: where the rules do
// not let the session read what the call changes, nothing in that differs by what is in those files.
func (p *Pending) Shown(agent bool) *client.Approval {
	why := ""
	if agent && p.Unreadable != nil {
		why = p.Unreadable()
	}
	if why == "" {
		return &p.Row.Approval
	}
	j := *p.Judgement
	if j.Prep != nil {
		prep := *j.Prep
		prep.Diff = ""
		j.Prep = &prep
	}
	row := p.Row
	row.Env = slices.Clone(row.Env)
	Describe(&row, &j)
	row.Metadata["not_shown"] = why
	return &row.Approval
}

// shownOf are the requests that need a yes without those that say a second time what
// the one before them says: a command is asked for as it is written and in its
// plain form, which are the same to a person where the same rule asks about both
// and the same would be saved.
func shownOf(j *judge.Judgement) []judge.Judged {
	asked := j.Asked()
	if len(asked) > 2*MaxShownRequests {
		return asked // not all of them are shown anyway
	}
	return slices.CompactFunc(asked, func(a, b judge.Judged) bool {
		p, q := &a.Request, &b.Request
		return p.Permission == tool.PermissionBash && q.Permission == tool.PermissionBash && p.Opaque == q.Opaque && a.Rule == b.Rule && p.Save == q.Save &&
			shell.Canonical(p.Pattern) == shell.Canonical(q.Pattern)
	})
}

// shownText collects texts for people.
type shownText struct{ meta map[string]any }

// text adds one, with everything in it made visible.
func (d *shownText) text(name, text string) {
	if text != "" {
		d.meta[name] = shell.Visible(d.shortened(text, MaxShownText))
	}
}

// shortened leaves out the middle of what is too long: what matters may be at
// the end.
func (d *shownText) shortened(text string, most int) string {
	if len(text) <= most {
		return text
	}
	d.meta["truncated"] = true
	head := text[:plain.RuneStart(text, most/2)]
	tail := plain.FromRune(text[len(text)-most/2:])
	return head + fmt.Sprintf("\n[… %s left out …]\n", plain.Count(len(text)-len(head)-len(tail), "byte", "bytes")) + tail
}
