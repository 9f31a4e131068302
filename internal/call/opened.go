package call

import (
	"maps"
	"slices"
	"sync"

	"github.com/toold/toold/internal/call/remark"
)

// opened is what a call has to do with the network: what somebody has answered for it, or is
// being asked about, and what did not pass.
type opened struct {
	mu     sync.Mutex // guards the fields below
	asked  map[string]chan struct{}
	said   map[string]bool // what somebody has answered: whether it is allowed
	over   bool            // the call: what was said holds no more
	denied remark.Denials
}

// begin gives the answer on what key names, where there is one. Otherwise somebody is asked
// already until other is closed, or, where that is nil, the caller is to ask and call end.
func (o *opened) begin(key string) (allowed, answered bool, other <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if allowed, answered = o.said[key]; answered {
		return allowed, true, nil
	}
	if c := o.asked[key]; c != nil {
		return false, false, c
	}
	if o.asked == nil {
		o.asked, o.said = make(map[string]chan struct{}), make(map[string]bool)
	}
	o.asked[key] = make(chan struct{})
	return false, false, nil
}

// allowed says whether somebody has allowed, for the call, what key names.
func (o *opened) allowed(key string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.said[key] && !o.over
}

// end says how the asking ended that begin has begun. Only an answer holds for the call, and none
// once that is over.
func (o *opened) end(key string, allowed, answered bool) (holds bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.asked[key])
	delete(o.asked, key)
	if answered && !o.over {
		o.said[key] = allowed
	}
	return answered && !o.over
}

// close says that the call is over, and whether somebody has allowed something until then.
func (o *opened) close() (allowed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	return slices.Contains(slices.Collect(maps.Values(o.said)), true)
}

func (o *opened) closed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.over
}

func (o *opened) block(n remark.Denial) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.denied.Add(n)
}

// blocked is what did not pass, as lines and as metadata.
func (o *opened) blocked() (lines []string, list []remark.Denial) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.denied.Lines(), o.denied.List()
}
