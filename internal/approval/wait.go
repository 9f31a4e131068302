package approval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/hook"
	"github.com/toold/toold/internal/steady"
	"github.com/toold/toold/internal/strictjson"
)

// Await waits until the approval has ended, in whatever way, or ctx has; then its error
// is the cause of that, and the approval is still pending. again judges the call by the
// rules of the moment; the zero Reply says that they still ask.
func (d *Desk) Await(ctx context.Context, p *Pending, again func() Reply) (Reply, error) {
	deadline := time.NewTimer(steady.Now().Left(p.Row.Expires, p.Row.Until))
	defer deadline.Stop()
	for {
		var r Reply
		select {
		case r := <-p.reply:
			return r, nil
		case <-p.again:
			if r = again(); r.How == "" {
				continue
			}
		case <-deadline.C:
			r = Reply{How: Timeout}
		case <-ctx.Done():
			return r, context.Cause(ctx)
		}
		if err := d.Settle(p, r); err != nil && !errors.Is(err, ErrAnswered) {
			d.Drop(p)
			return r, err
		}
	}
}

// Ask has the configured program answer. Whatever goes wrong is a
// rejection.
func (d *Desk) Ask(ctx context.Context, p *Pending) {
	const by = "command"
	question, err := json.Marshal(&p.Row.Approval)
	if err != nil {
		d.Log.Error("ask the approval program", "approval", p.Row.ID, "error", err)
		return // only our own struct comes here; the deadline ends it
	}
	select {
	case d.Programs <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-d.Programs }()
	// It may take until the deadline, which ends the approval and this with it.
	out, err := hook.Run(ctx, d.Config().Command, question, steady.Now().Left(p.Row.Expires, p.Row.Until)+time.Second)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		var a client.ApprovalAnswer
		if a, err = decodeAnswer(out); err == nil {
			_, err = d.answer(p, by, a)
		}
	}
	if err == nil || errors.Is(err, ErrAnswered) {
		return
	}
	d.Log.Error("the approval program gave no answer: the call is rejected", "approval", p.Row.ID, "error", err)
	_, err = d.answer(p, by, client.ApprovalAnswer{Answer: client.AnswerReject, Message: "the approval program failed"})
	if err != nil && !errors.Is(err, ErrAnswered) {
		d.Log.Error("reject an approval", "approval", p.Row.ID, "error", err)
	}
}

// decodeAnswer reads what the approval program said: one JSON object with no
// field that is not known.
func decodeAnswer(out []byte) (a client.ApprovalAnswer, err error) {
	if err = strictjson.Decode(out, &a); err != nil {
		err = fmt.Errorf("its answer is not the JSON expected: %w", err)
	}
	return a, err
}
