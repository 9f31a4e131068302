package session

import "github.com/toold/toold/internal/tool"

// hooksBefore runs the hooks of call.before. With replaced, a hook wants another
// input, which was parsed like any other and is to be judged from the beginning;
// with denied, the call must not run and that is its outcome.
func (s *Session) hooksBefore(_ *call, _ *tool.Invocation) (replaced *tool.Invocation, denied *outcome) {
	return nil, nil
}

// hooksAfter runs the hooks of file.edited and call.after, which may change what
// is said of a call that ran.
func (s *Session) hooksAfter(_ *call, _ *outcome) {}
