package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/toold/toold/client"
)

// approvalFeed gives the pending approvals each time that they may have changed.
// The list is what counts; events only say when to ask for it, so that none is
// missed whatever breaks.
type approvalFeed struct {
	client *client.Client
	// lists has the newest list; one that nobody took is replaced.
	lists  chan approvalList
	ended  map[string]client.ApprovalReply // of those that ended lately
	cancel context.CancelFunc
	done   chan struct{}
}

// approvalList is what is pending, with the endings since the list before.
type approvalList struct {
	pending []client.Approval
	ended   []client.ApprovalReply
	err     error
}

// relist is how often the list is asked for without an event.
const relist = 5 * time.Second

func newApprovalFeed(ctx context.Context, c *client.Client, session string) *approvalFeed {
	ctx, cancel := context.WithCancel(ctx)
	f := &approvalFeed{
		client: c, lists: make(chan approvalList), ended: map[string]client.ApprovalReply{}, cancel: cancel, done: make(chan struct{}),
	}
	go func() { defer close(f.done); f.run(ctx, session) }()
	return f
}

func (f *approvalFeed) stop() {
	f.cancel()
	<-f.done
}

// next waits for the next list.
func (f *approvalFeed) next(ctx context.Context) ([]client.Approval, error) {
	select {
	case l := <-f.lists:
		f.note(l)
		return l.pending, l.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (f *approvalFeed) note(l approvalList) {
	for _, r := range l.ended {
		f.ended[r.ID] = r
	}
}

// forget drops the endings of approvals that nobody waits for.
func (f *approvalFeed) forget(known map[string]bool) {
	for id := range f.ended {
		if !known[id] {
			delete(f.ended, id)
		}
	}
}

// run lists, at once and whenever an event or the time says so.
func (f *approvalFeed) run(ctx context.Context, session string) {
	events := make(chan approvalEvent)
	streamed := make(chan struct{})
	go func() { defer close(streamed); f.events(ctx, session, events) }()
	defer func() { f.cancel(); <-streamed }()
	tick := time.NewTicker(relist)
	defer tick.Stop()
	var next approvalList // what nobody has taken yet
	next.pending, next.err = pendingApprovals(ctx, f.client, session)
	out := f.lists
	for {
		select {
		case out <- next:
			if next.err != nil {
				return
			}
			next, out = approvalList{}, nil
			continue
		case e := <-events:
			if e.reply.ID != "" {
				next.ended = append(next.ended, e.reply)
			}
			if next.err == nil {
				next.err = e.err
			}
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if next.err == nil {
			pending, err := pendingApprovals(ctx, f.client, session)
			if isUnreachable(err) {
				continue // the stream of events says when it is away for good
			}
			next.pending, next.err = pending, err
		}
		out = f.lists
	}
}

// approvalEvent is an event of an approval: how one ended, or just that there is
// something new; or why there will be no more events.
type approvalEvent struct {
	reply client.ApprovalReply
	err   error
}

func (f *approvalFeed) events(ctx context.Context, session string, to chan<- approvalEvent) {
	send := func(e approvalEvent) bool {
		select {
		case to <- e:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for e, err := range f.client.Events(ctx, client.EventQuery{Session: session, Type: "approval.*"}) {
		var x approvalEvent
		switch {
		case err != nil:
			x.err = err
		case e.Type == client.EventApprovalReplied:
			_ = json.Unmarshal(e.Data, &x.reply) // without it the ending is unknown
		}
		if !send(x) {
			return
		}
	}
	send(approvalEvent{err: errors.New("the stream of events ended")})
}
