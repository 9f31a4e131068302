package stream

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/plain"
)

// Kind says whether an output is one stream or two.
type Kind int

// The kinds.
const (
	Unknown Kind = iota // it is not known any more
	One
	Two
)

// KindOf is the kind of an output whose stdout and stderr are apart, or not.
func KindOf(split bool) Kind {
	if split {
		return Two
	}
	return One
}

// PositionError says that an event id is not from the stream of this call.
type PositionError struct {
	After string
	Total int64 // bytes of the output so far
}

// Error implements error.
func (e *PositionError) Error() string {
	return fmt.Sprintf("%q is not a position in an output of %s", e.After, plain.Count(e.Total, "byte", "bytes"))
}

// Rerun sends the events of a call again.
type Rerun struct {
	at    output.Position // of the next byte to send
	carry [2][]byte
	split bool
	base  client.Event // what all events have in common

	mu   sync.Mutex // held while an event is sent; guards told
	send func(client.Event)
	told map[string]string // the last data that was sent, by type
}

// NewRerun makes one that sends to fn. base is what all events have in common: the
// tenant, the session and the call.
func NewRerun(fn func(client.Event), base client.Event) *Rerun {
	return &Rerun{send: fn, base: base, told: make(map[string]string)}
}

// Begin sets where the output begins, "" for its beginning. It comes
// before anything else; its error is a *PositionError.
func (r *Rerun) Begin(after string, kind Kind, total int64) error {
	r.split = kind == Two
	if after == "" {
		return nil
	}
	at, split, err := output.ParsePosition(after)
	if err != nil || kind != Unknown && split != r.split || at[0] > total || at[1] > total-at[0] {
		return &PositionError{After: after, Total: total}
	}
	r.at, r.split = at, split
	return nil
}

// Made is an event of the call.
func (r *Rerun) Made(typ string, data any) client.Event {
	e := r.base
	e.Type, e.Time = typ, time.Now().UTC()
	e.Data, _ = json.Marshal(data) // only our own plain structs come here
	return e
}

// pass sends an event, one at a time.
func (r *Rerun) pass(e client.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.send(e)
}

// Event passes on what is neither output nor the end, and nothing twice in a row.
func (r *Rerun) Event(e client.Event) {
	switch e.Type {
	case "output", string(client.CallCompleted), string(client.CallError):
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, ok := r.told[e.Type]; !ok || last != string(e.Data) {
		r.told[e.Type] = string(e.Data)
		r.send(e)
	}
}

// End sends the end of the call, if it has ended.
func (r *Rerun) End(v *client.Call) {
	if v.Finished() {
		r.pass(r.Made(string(v.Status), v))
	}
}

// Give sends the next bytes of a stream, 0 or 1. A UTF-8 sequence that is cut by the end
// of p waits for its rest.
func (r *Rerun) Give(i int, p []byte) {
	p = append(r.carry[i], p...)
	n := len(p) - plain.PartialRune(p)
	r.carry[i] = append([]byte(nil), p[n:]...)
	r.output(i, p[:n])
}

// output sends bytes of a stream.
func (r *Rerun) output(i int, p []byte) {
	if len(p) == 0 {
		return
	}
	stream := ""
	if r.split {
		stream = streamNames[i]
	}
	e := r.Made("output", client.NewOutput(stream, r.at[i], p))
	r.at[i] += int64(len(p))
	e.ID = r.at.ID(r.split)
	r.pass(e)
}

// Ended sends what Give held back, and how much of the whole was not kept.
func (r *Rerun) Ended(total int64) {
	for i, p := range r.carry {
		r.output(i, p)
	}
	have := r.at[0] + r.at[1]
	if have >= total {
		return
	}
	e := r.Made("output", client.Output{Offset: have, Missing: total - have})
	if !r.split {
		e.ID = output.Position{total}.ID(false)
	}
	r.pass(e)
}

// Live sends an output that may still grow, until its end.
func (r *Rerun) Live(ctx context.Context, o *output.Output) error {
	err := o.Follow(ctx, r.at, r.Give)
	if err == nil {
		r.Ended(o.Offset())
	}
	return err
}

// Split reports whether stdout and stderr are apart in this stream.
func (r *Rerun) Split() bool { return r.split }

// From is where the output goes on.
func (r *Rerun) From() output.Position { return r.at }
