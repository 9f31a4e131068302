package judge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
)

// history is what a session has done, as far as loops are looked for in it.
type history struct {
	mu    sync.Mutex    // guards the fields below
	read  bool          // what earlier daemons have recorded is in it
	steps []policy.Step // oldest first: what each asked for, and what it was answered
	// early has the answers of calls that ended before read: the store may hear of
	// them later than whoever reads it.
	early map[string]policy.Digest
}

// Loop is a loop that a call would be part of.
type Loop struct {
	policy.Loop
	tools []string // of one round, oldest first
}

// Guard looks at a call together with all that the session has done, also under
// earlier daemons, and is doing at the moment; and remembers it. part: it is one of a batch.
// again: it was looked at before, with another input. Loops are those of models: what a
// person has typed and what no model can call does not come here.
func (j *Judge) Guard(ctx context.Context, call string, inv *tool.Invocation, part, again bool) (*Loop, error) {
	h := &j.history
	next := digestOf(inv.Tool.Name, inv.Near())
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.read {
		if err := j.recall(ctx); err != nil {
			return nil, fmt.Errorf("read the history of the session: %w", err)
		}
		h.read, h.early = true, nil
	}
	if again {
		h.forgetLocked(call)
	}
	loops := j.court.config.Load().Loop
	if inv.Tool.Polling {
		loops = loops.Patient()
	}
	step := policy.Step{Input: next, Call: call, Tool: inv.Tool.Name, Part: part}
	found := h.loopLocked(loops, step)
	if over := len(h.steps) - policy.MaxHistory; over > policy.MaxHistory/4 {
		h.steps = slices.Delete(h.steps, 0, over)
	}
	h.steps = append(h.steps, step)
	return found, nil
}

// loopLocked is the loop that next would be part of; nil for none. A batch can be part of one,
// as the call that it is, and so can what it makes: that counts together with the calls that
// stand alone, in no loop together with the batch.
func (h *history) loopLocked(loops policy.LoopConfig, next policy.Step) (found *Loop) {
	look := func(steps []policy.Step) {
		l, is := loops.Check(steps, next.Input)
		if !is || found != nil && (found.Hard || !l.Hard) {
			return
		}
		found = &Loop{Loop: l}
		for _, v := range steps[max(0, len(steps)+1-l.Period):] {
			found.tools = append(found.tools, v.Tool)
		}
		found.tools = append(found.tools, next.Tool)
	}
	inBatch := func(s policy.Step) bool { return s.Part }
	ofBatch := func(s policy.Step) bool { return s.Part || isBatch(s) }
	if !ofBatch(next) && !slices.ContainsFunc(h.steps, ofBatch) {
		look(h.steps) // twice would be the same
		return found
	}
	without := func(leave func(policy.Step) bool) []policy.Step {
		return slices.DeleteFunc(slices.Clone(h.steps), leave)
	}
	if !isBatch(next) {
		look(without(isBatch))
	}
	if !next.Part {
		look(without(inBatch))
	}
	return found
}

func isBatch(s policy.Step) bool { return s.Tool == tool.PermissionBatch }

// Fresh says that the session was just made: there is nothing that it has done.
func (j *Judge) Fresh() {
	j.history.mu.Lock()
	defer j.history.mu.Unlock()
	j.history.read = true
}

// recall reads what is stored of the session's calls. Called with history.mu held.
func (j *Judge) recall(ctx context.Context) error {
	h, row := &j.history, j.row()
	err := j.court.store.Recent(ctx, store.RecentFilter{Session: row.ID, Limit: policy.MaxHistory}, func(row *store.Call) error {
		if row.Status == client.CallPending {
			return nil // it has yet to come here, or will never run
		}
		if row.Typed || j.court.isTransfer(row) || putOff(&row.Call) {
			return nil
		}
		st := policy.Step{Input: j.court.digestOfRow(row), Call: row.ID, Tool: row.Tool, Part: row.Parent != ""}
		if row.Finished() {
			st.Output = answerOf(&row.Call)
		} else if out, ok := h.early[row.ID]; ok {
			st.Output = out
		}
		h.steps = append(h.steps, st)
		return nil
	})
	if err != nil {
		h.steps = nil
		return err
	}
	slices.Reverse(h.steps)
	return nil
}

// indexLocked finds the step of a call, which is most often the last; -1 where
// there is none.
func (h *history) indexLocked(call string) int {
	for i, s := range slices.Backward(h.steps) {
		if s.Call == call {
			return i
		}
	}
	return -1
}

// forgetLocked removes a call that is about to be added again.
func (h *history) forgetLocked(call string) {
	if i := h.indexLocked(call); i >= 0 {
		h.steps = slices.Delete(h.steps, i, i+1)
	}
}

// Answered notes what a call was answered, which counts from then on. One that was put off does
// not count at all.
func (j *Judge) Answered(c *client.Call) {
	h, out := &j.history, answerOf(c)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch i := h.indexLocked(c.ID); {
	case putOff(c):
		h.forgetLocked(c.ID)
	case i >= 0:
		h.steps[i].Output = out
	case !h.read:
		if h.early == nil {
			h.early = map[string]policy.Digest{}
		}
		h.early[c.ID] = out
	}
}

// digestOf stands for what a call asks for; input is what is near to it (see
// tool.Invocation.Near). It is made of the hash of that, since of a large one that never
// ran no more than the hash is kept.
func digestOf(name string, input json.RawMessage) policy.Digest {
	sum := sha256.Sum256(input)
	return digest(name, hex.EncodeToString(sum[:]))
}

// digestOfRow is digestOf for a call that was stored.
func (k *Court) digestOfRow(row *store.Call) policy.Digest {
	if n := row.InputNotKept; n != nil {
		return digest(row.Tool, n.SHA256)
	}
	near := row.Input // malformed, or of a tool that there is no more
	if inv, err := k.tools.Parse(row.Tool, row.Input); err == nil {
		near = inv.Near()
	}
	return digestOf(row.Tool, near)
}

// isTransfer reports whether the call is of a route of our own, and not a client's that
// has named a hidden tool.
func (k *Court) isTransfer(row *store.Call) bool {
	if row.Error != nil && (row.Error.Code == client.CodeUnknownTool || row.Error.Code == client.CodeDoomLoop) {
		return false
	}
	def, ok := k.tools.Get(row.Tool)
	return ok && def.Hidden
}

// putOff reports whether a call has ended without having run because the daemon could not have it
// run then. Who makes it again does what it was told.
func putOff(c *client.Call) bool {
	return c.Error != nil && c.Error.Code == client.CodeOverloaded && c.Time.Started == nil
}

// answerOf stands for what a call was answered; it is zero where policy did not
// let it run, for that says nothing about what it does.
func answerOf(c *client.Call) policy.Digest {
	var code, message string
	if c.Error != nil {
		switch code, message = string(c.Error.Code), c.Error.Message; c.Error.Code {
		case client.CodeDenied, client.CodeDoomLoop, client.CodeApprovalTimeout, client.CodeStaleApproval, client.CodeAborted:
			return policy.Digest{}
		}
	}
	if c.Metadata[tool.BatchLooped] != nil {
		return policy.Digest{} // its text says how often what it was not let do would have run
	}
	parts := []string{code, message, c.Output, fmt.Sprint(c.IsError)}
	for _, a := range c.Attachments {
		parts = append(parts, a.URL)
	}
	return digest(parts...)
}

func digest(parts ...string) policy.Digest {
	h := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:", len(p)) // a hash takes everything
		_, _ = h.Write([]byte(p))
	}
	return policy.Digest(h.Sum(nil))
}

// Describe says what repeats and how often.
func (l *Loop) Describe(name string) string {
	same := "the calls before gave the same answers"
	if l.Polling {
		same = "the answers of the calls before differ, but that is a lot of polling"
	}
	if l.Period <= 1 {
		return fmt.Sprintf("this would be call %d in a row of %s with the same input; %s", l.Count, name, same)
	}
	return fmt.Sprintf("this would be the end of round %d of the same %d calls (%s); %s", l.Count, l.Period, strings.Join(l.tools, ", "), same)
}
