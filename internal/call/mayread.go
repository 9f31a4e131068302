package call

import (
	"maps"

	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/tool/run"
)

// withoutUnreadable is a result as the session may see it: with what it quotes of the
// file that it is about, or without all content of that file where MayRead does not
// allow it. An approver was shown that content anyway; this is for the model.
func (t tail) withoutUnreadable(r *run.Result) *run.Result {
	_, diff := r.Metadata["diff"]
	if r.Quote == "" && !diff {
		return r
	}
	v := *r
	v.Quote = ""
	read := policy.Verdict{Action: policy.Deny, Rule: "default", Reason: "it is not known which file it is"}
	if path, ok := r.Metadata["path"].(string); ok && path != "" {
		read = t.g.judge.MayRead(t.c.profile, path)
	}
	if read.Action == policy.Allow {
		v.Output += r.Quote
		return &v
	}
	v.Output += "\n[content of the file is not shown: " + judge.NotReadable(&read) + "]"
	v.Metadata = maps.Clone(r.Metadata)
	delete(v.Metadata, "diff")
	v.Metadata["not_shown"] = judge.NotReadable(&read)
	return &v
}
