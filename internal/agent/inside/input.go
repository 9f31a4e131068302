package inside

import (
	"errors"
	"io"

	"github.com/toold/toold/internal/wire"
)

// inputWindow is how many bytes of input may wait for a call to read them.
const inputWindow = 256 << 10

// input is what the daemon sends into a call that reads it. It comes over the exchange
// that began the call, and ends with that. The call's mu guards it.
type input struct {
	from  *attachment // who sends it; nil for a Prepare
	data  []byte      // has come and was not read yet
	came  int64       // offset after data
	want  int64       // input below this offset is wanted
	told  int64       // and this is what was said of that
	ended bool
	why   string // it ended too early; "" = it is whole
}

// wants reports whether a is to be told that more is wanted.
func (in *input) wants(a *attachment) bool {
	return in.from == a && in.want > in.told && !in.ended
}

// inputReader is a call as its Env.Input.
type inputReader call

var (
	errInputGone = errors.New("the connection to the daemon was lost, and what it sent with it")
	errNoInput   = errors.New("the call has no input")
)

// Read implements io.Reader.
func (r *inputReader) Read(p []byte) (int, error) {
	c := (*call)(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	in := &c.in
	for {
		switch {
		case len(in.data) > 0:
			n := copy(p, in.data)
			in.data = in.data[n:]
			return n, nil
		case in.ended && in.why != "":
			return 0, errors.New(in.why)
		case in.ended:
			return 0, io.EOF
		case c.ctx.Err() != nil:
			return 0, c.ctx.Err()
		case in.from == nil:
			return 0, errNoInput
		case in.from.gone || in.from.detached || in.from.over:
			return 0, errInputGone
		}
		if in.want < in.came+inputWindow/2 {
			in.want = in.came + inputWindow
			c.stir(in.from)
		}
		c.ring.cond.Wait()
	}
}

// input takes what p has sent. For an exchange that is over it is dropped, the messages
// have crossed.
func (p *peer) input(h wire.Head, body []byte) error {
	p.mu.Lock()
	x := p.at[h.ID]
	p.mu.Unlock()
	if x == nil {
		return nil
	}
	c := x.call
	c.mu.Lock()
	defer c.mu.Unlock()
	in := &c.in
	switch {
	case in.from != x.a || in.ended || h.N != in.came:
		return errors.New("input that does not follow")
	case h.Flag:
		in.ended, in.why = true, wire.Cut(string(body))
	case len(body) == 0 || h.N+int64(len(body)) > in.told:
		return errors.New("input that was not wanted")
	case !c.finished:
		in.data = append(in.data, body...)
	}
	if !h.Flag {
		in.came += int64(len(body))
	}
	c.ring.cond.Broadcast()
	return nil
}
