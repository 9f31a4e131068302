package call

import (
	"sync"
)

// live are the calls of a daemon whose results are not in the store yet, by their ids.
type live struct {
	calls sync.Map
	began chan struct{} // full: some have begun since it was emptied
}

func (l *live) find(id string) (*Call, bool) {
	v, ok := l.calls.Load(id)
	if !ok {
		return nil, false
	}
	return v.(*Call), true
}

func (l *live) add(c *Call) {
	l.calls.Store(c.id, c)
	select {
	case l.began <- struct{}{}:
	default:
	}
}

func (l *live) drop(c *Call) { l.calls.CompareAndDelete(c.id, c) }

// each visits calls until visit says that it has seen enough.
func (l *live) each(visit func(*Call) (more bool)) {
	l.calls.Range(func(_, v any) bool { return visit(v.(*Call)) })
}
