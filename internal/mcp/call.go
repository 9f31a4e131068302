package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"iter"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
)

// abortTimeout bounds how long the end of an aborted call is waited for: a command has
// 3 s to end by itself.
const abortTimeout = 30 * time.Second

// callTool makes a call, or takes one further.
func (s *Server) callTool(ctx context.Context, req *sdk.CallToolRequest) *sdk.CallToolResult {
	name, _ := ctx.Value(toolName{}).(string) // the middleware has put it there
	if name == WaitTool {
		return s.wait(ctx, req)
	}
	input := req.Params.Arguments
	if len(input) == 0 || string(input) == "null" {
		input = json.RawMessage("{}")
	}
	w := s.newWatch(req)
	// With a key, a broken connection is taken up without a second run.
	call := client.CallCreate{Key: "mcp-" + rand.Text(), Tool: name, Input: input, Agent: s.agentOf(req.ClientInfo())}
	return w.follow(ctx, func(stream context.Context) iter.Seq2[client.Event, error] {
		return s.whenBack(stream, func() iter.Seq2[client.Event, error] {
			return s.cfg.Client.StreamCall(stream, s.cfg.Session, call, client.CallOptions{})
		})
	}, s.cfg.Wait)
}

// maxAgent bounds the name of an agent, in bytes, as the API does.
const maxAgent = 256

// agentOf names the agent that makes a call, which is never a person: as its client does, if it does.
func (s *Server) agentOf(client *sdk.Implementation) string {
	if client != nil && isAgent(client.Name) {
		return client.Name
	}
	return cmp.Or(s.cfg.client, "mcp")
}

// isAgent reports whether a client's name for itself can be that of an agent.
func isAgent(name string) bool {
	return name != "" && len(name) <= maxAgent && plain.Printable(name)
}

// arrival is what a stream of events gives.
type arrival struct {
	event client.Event
	err   error
}

// watch follows one call for one request.
type watch struct {
	s     *Server
	notes *notes
	tail  tail
	call  client.Call // as far as it is known
	asked *client.Approval
}

func (s *Server) newWatch(req *sdk.CallToolRequest) *watch {
	return &watch{s: s, notes: newNotes(req), tail: tail{most: maxSoFar}}
}

// follow takes events until the call has ended, wait has passed, or ctx ends: then it
// aborts the call and waits for its end.
func (w *watch) follow(ctx context.Context, open func(context.Context) iter.Seq2[client.Event, error], wait time.Duration) *sdk.CallToolResult {
	// The stream ends by itself when ctx does: the call must be known to be aborted.
	stream, leave := context.WithCancel(context.WithoutCancel(ctx))
	events := make(chan arrival)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(events)
		for e, err := range open(stream) {
			select {
			case events <- arrival{e, err}:
			case <-stream.Done():
				return
			}
		}
	}()
	defer func() { leave(); <-done }()

	patience := time.NewTimer(wait)
	defer patience.Stop()
	beat := time.NewTicker(notesEvery)
	defer beat.Stop()
	cancelled, gone := w.ends(ctx)
	gaveUp := false
	for {
		select {
		case a, open := <-events:
			if !open {
				return failed(client.ErrDisconnected)
			}
			if r := w.take(ctx, a); r != nil {
				return r
			}
		case <-beat.C:
			w.notes.beat(ctx, w.waitsFor())
		case <-patience.C:
			if w.call.ID != "" {
				return w.soFar()
			}
			patience.Reset(time.Second) // without its id nobody could take it further
		case <-gone:
			gone = nil
			if w.s.cfg.leaves() {
				return w.soFar()
			}
		case <-cancelled.Done():
			if w.s.cfg.leaves() {
				return w.soFar()
			}
			if w.call.ID != "" {
				return w.abort(ctx)
			}
			cancelled = context.Background() // until the daemon has said which call it is
			gaveUp = true
		}
		if gaveUp && w.call.ID != "" {
			return w.abort(ctx)
		}
	}
}

// ends are how a request can end before its call does: cancelled by its client, or with
// the HTTP request that carried it.
func (w *watch) ends(ctx context.Context) (cancelled context.Context, gone <-chan struct{}) {
	cancelled = ctx
	if c, ok := ctx.Value(cancelKey{}).(context.Context); ok {
		cancelled = c
	}
	if w.s.cfg.carrier != nil {
		gone = w.s.cfg.carrier.Done()
	}
	return cancelled, gone
}

// abort ends the call and gives its end.
func (w *watch) abort(ctx context.Context) *sdk.CallToolResult {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	c, err := w.s.cfg.Client.AbortCall(ctx, w.call.ID)
	if err != nil {
		return failed(err)
	}
	return w.s.finished(c)
}

// take handles one event. It returns the result when that was the last.
func (w *watch) take(ctx context.Context, a arrival) *sdk.CallToolResult {
	if errors.Is(a.err, client.ErrDisconnected) && w.s.cfg.carrier != nil && w.call.ID != "" {
		return w.soFar() // the daemon, which we are in, stops
	}
	if a.err != nil {
		return failed(a.err)
	}
	var err error
	switch e := a.event; e.Type {
	case string(client.CallPending), string(client.CallRunning):
		err = json.Unmarshal(e.Data, &w.call)
	case string(client.CallCompleted), string(client.CallError):
		c := new(client.Call)
		if err = json.Unmarshal(e.Data, c); err == nil {
			return w.s.finished(c)
		}
	case "output":
		var o client.Output
		if err = json.Unmarshal(e.Data, &o); err == nil {
			w.tail.add(o)
			w.notes.output(ctx, w.tail.lastLine())
		}
	case client.EventApprovalAsked:
		w.asked = new(client.Approval)
		if err = json.Unmarshal(e.Data, w.asked); err == nil {
			w.notes.say(ctx, w.waitsFor())
			w.notes.log(ctx, w.waitsFor())
		}
	case client.EventApprovalReplied:
		w.asked = nil
	}
	if err != nil {
		return failed(errors.Join(errors.New("an event of the daemon is not the JSON expected"), err))
	}
	return nil
}
