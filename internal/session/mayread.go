package session

import "github.com/toold/toold/internal/policy"

// mayRead says whether answers of a session with this profile may show content of
// the file at path, which is absolute in the sandbox with all links resolved. The
// rules of "read" bind every tool that shows content. Nobody is asked, so only the
// action allow lets it be shown.
func (s *Session) mayRead(profile, path string) policy.Verdict {
	s.mu.Lock()
	worktree := s.row.Worktree.Target
	s.mu.Unlock()
	v, _ := s.rulesFor(profile).judge([]policy.Request{{
		Permission: "read", Pattern: path, Path: path, Relative: policy.RelativeTo(worktree, path),
	}})
	return v
}

// notReadable words why mayRead did not allow it, with the rule and its place.
func notReadable(v *policy.Verdict) string {
	if v.Action == policy.Ask {
		return "reading it would need an approval" + because(v)
	}
	return "reading it is denied" + because(v)
}
