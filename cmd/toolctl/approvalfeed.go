package main

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toold/toold/client"
)

// approvalFeed gives the pending approvals each time that they may have changed.
// The list is what counts; events only say when to ask for it and how approvals
// ended, so that none is missed whatever breaks. It is asked for when the stream of
// events has begun: no ending of what is in it is missed either.
type approvalFeed struct {
	client *client.Client
	// lists has the newest list; one that nobody took is replaced.
	lists  chan approvalList
	cancel context.CancelFunc
	done   chan struct{}
}

// approvalList is what is pending, with the endings, by id, since the list before.
type approvalList struct {
	pending []client.Approval
	ended   map[string]client.ApprovalReply
	err     error
}

// relist is how often the list is asked for without an event.
const relist = 5 * time.Second

// Whoever asks for the list may have it before the event of an ending that is in it:
// an approval that is gone without a word counts as pending for endingTime more, and
// is looked for every endingEvery.
const (
	endingTime  = 5 * time.Second
	endingEvery = time.Second
)

func newApprovalFeed(ctx context.Context, c *client.Client, q client.ApprovalQuery) *approvalFeed {
	ctx, cancel := context.WithCancel(ctx)
	f := &approvalFeed{client: c, lists: make(chan approvalList), cancel: cancel, done: make(chan struct{})}
	go func() { defer close(f.done); f.run(ctx, q) }()
	return f
}

func (f *approvalFeed) stop() {
	f.cancel()
	<-f.done
}

// next waits for the next list.
func (f *approvalFeed) next(ctx context.Context) (approvalList, error) {
	select {
	case l := <-f.lists:
		return l, l.err
	case <-ctx.Done():
		return approvalList{}, context.Cause(ctx)
	}
}

// run lists whenever an event or the time says so.
func (f *approvalFeed) run(ctx context.Context, want client.ApprovalQuery) {
	events := make(chan approvalEvent)
	var streamed sync.WaitGroup
	streamed.Go(func() { f.events(ctx, want, events) })
	defer func() { f.cancel(); streamed.Wait() }()
	tick := time.NewTicker(relist)
	defer tick.Stop()
	known := knownApprovals{ended: map[string]bool{}, missing: map[string]time.Time{}}
	next := approvalList{ended: map[string]client.ApprovalReply{}} // what nobody has taken yet
	var out chan approvalList                                      // nil while there is no news
	for {
		select {
		case out <- next:
			if next.err != nil {
				return
			}
			next, out = approvalList{ended: map[string]client.ApprovalReply{}}, nil
			continue
		case e := <-events:
			if e.reply.ID != "" {
				next.ended[e.reply.ID], known.ended[e.reply.ID] = e.reply, true
			}
			next.err = cmp.Or(next.err, e.err)
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		pending, err := pendingApprovals(ctx, f.client, want)
		switch {
		case err == nil:
			next.pending = known.take(pending, time.Now())
			tick.Reset(known.pause())
		case !isUnreachable(err):
			next.err = err // it says more than that there are no events
		case next.err == nil:
			continue // the stream of events says when it is away for good
		}
		out = f.lists
	}
}

// knownApprovals are those that were pending when they were listed last.
type knownApprovals struct {
	listed  []client.Approval
	ended   map[string]bool      // whose ending has come; they may be in the list for a moment yet
	missing map[string]time.Time // since when those without an ending are not in the list
}

// take gives a list without those that have ended, and with those that are gone from
// it without a word.
func (k *knownApprovals) take(pending []client.Approval, now time.Time) []client.Approval {
	var all []client.Approval
	in, missing, ended := map[string]bool{}, map[string]time.Time{}, map[string]bool{}
	for _, a := range pending {
		if in[a.ID] = true; k.ended[a.ID] {
			ended[a.ID] = true
		} else {
			all = append(all, a)
		}
	}
	for _, a := range k.listed {
		if in[a.ID] || k.ended[a.ID] {
			continue
		}
		since, before := k.missing[a.ID]
		if !before {
			since = now
		}
		if now.Sub(since) < endingTime {
			missing[a.ID] = since
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b client.Approval) int { return strings.Compare(a.ID, b.ID) })
	k.listed, k.missing, k.ended = all, missing, ended
	return slices.Clone(all)
}

// pause is how long the list need not be asked for without an event.
func (k *knownApprovals) pause() time.Duration {
	if len(k.missing) > 0 {
		return endingEvery
	}
	return relist
}

// approvalEvent is an event of an approval: how one ended, or just that there is
// something new; or why there will be no more events.
type approvalEvent struct {
	reply client.ApprovalReply
	err   error
}

// events tells that the stream has begun, and then of each event.
func (f *approvalFeed) events(ctx context.Context, want client.ApprovalQuery, to chan<- approvalEvent) {
	send := func(e approvalEvent) {
		select {
		case to <- e:
		case <-ctx.Done():
		}
	}
	q := client.EventQuery{Session: want.Session, AllTenants: want.AllTenants, Type: "approval.*", Opened: func() { send(approvalEvent{}) }}
	for e, err := range f.client.Events(ctx, q) {
		x := approvalEvent{err: err}
		if e.Type == client.EventApprovalReplied {
			_ = json.Unmarshal(e.Data, &x.reply) // without it the ending is unknown
		}
		send(x)
	}
}
