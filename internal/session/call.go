package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/strictjson"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// Call is the one path of a tool call. It runs in a goroutine of the call's own,
// so that the call outlives whoever asked for it. Each step trusts only those
// above it; an error before "run" means that the tool did not run.
func (s *Session) Call(c *call) {
	s.attend()
	defer s.left(c)

	// 1. Parse: strict JSON to the typed, normalised input that is judged,
	// hashed, stored and run. From here on nobody looks at the request's bytes. An
	// input that fits no tool is a call as well, which does not run.
	inv, err := s.parse(c)
	if err != nil {
		c.refuse(err)
		return
	}

	// 2. Store: the call exists on disk as pending. A key that was used before
	// leads to that call instead.
	if err := s.record(c, inv); err != nil {
		c.refuse(err)
		return
	}
	if c.malformed != nil {
		s.finish(c, s.notRun(c, s.refuseInput(c, inv)))
		return
	}
	s.proceed(c, inv)
}

// proceed is Call from where the call has a record. Here a call is taken up again
// that waited for its approval when an earlier daemon ended.
func (s *Session) proceed(c *call, inv *tool.Invocation) {
	var seen *run.Prepared // by a run that found that its paths lead elsewhere
	for round := 0; ; round++ {
		// 3. Loop guard: does it repeat what the session has done before?
		loop, err := s.guard(c, inv)
		if err != nil {
			s.finish(c, s.notRun(c, err))
			return
		}

		// 4. Access: what does it name? Pure.
		access := inv.Input.Access(s.shell())

		// 5. Prepare: inside the sandbox and without effect, resolve what it
		// names; 6. Judge: allow, deny, or wait until somebody has approved it.
		j, err := s.consider(c, inv, access, loop, seen)
		if err == nil {
			c.entitle(s.titleOf(j))
			err = s.permit(c, j)
		}
		if errors.Is(err, errWaits) {
			return // the next daemon takes it up
		}
		if err != nil {
			s.finish(c, s.notRun(c, err))
			return
		}

		// 7. Hooks before: they may deny, or replace the input, which is then
		// looked at like any other.
		replaced, denied := s.hooksBefore(c, inv)
		if denied == nil && replaced != nil {
			denied = s.replace(c, replaced, round)
		}
		if denied != nil {
			s.finish(c, denied)
			return
		}
		if replaced != nil {
			inv, seen = replaced, nil
			continue
		}

		// 8 to 11.
		c.bound = c.approved != "" || round >= maxUnbound
		if seen = s.perform(c, j); seen == nil {
			return
		}
	}
}

// consider does step 5, and step 6 as far as rules can. seen is what Prepare saw
// already, if it did.
func (s *Session) consider(c *call, inv *tool.Invocation, a tool.Access, loop *judge.Loop, seen *run.Prepared) (*judge.Judgement, error) {
	if seen == nil {
		if j := s.judgeFirst(c, inv, a, loop); j != nil {
			return j, nil
		}
		var err error
		if seen, err = s.prepare(c, inv, a); err != nil {
			return nil, err
		}
	}
	return s.judge.Judge(c.question(inv, a, seen, loop)), nil
}

// question is what the call's judge is asked. loop is nil where it repeats nothing, and
// seen where nothing was looked at.
func (c *call) question(inv *tool.Invocation, a tool.Access, seen *run.Prepared, loop *judge.Loop) judge.Question {
	return judge.Question{Profile: c.profile, Env: c.req.Env, Inv: inv, Access: a, Prep: seen, Loop: loop}
}

// guard does step 3. Loops are those of models: what a person has typed and what no
// model can call are no part of them.
func (s *Session) guard(c *call, inv *tool.Invocation) (*judge.Loop, error) {
	if c.probe || c.hidden || c.row.Typed {
		return nil, nil
	}
	again := c.guarded
	c.guarded = true
	return s.judge.Guard(c.ctx, c.id, inv, again)
}

// maxUnbound is how often a call is judged by where its paths lead while they go on
// to lead elsewhere; then Run opens what Prepare saw.
const maxUnbound = 3

// perform runs a call that may run, and finishes it. When it has not run, because
// it was judged by paths that lead elsewhere, it returns where they lead.
func (s *Session) perform(c *call, j *judge.Judgement) (seen *run.Prepared) {
	if !j.Provided && j.Prep != nil && j.Prep.Result != nil {
		o := &outcome{result: j.Prep.Result}
		s.hooksAfter(c, o)
		s.finish(c, o)
		return nil
	}

	// 8. Admission: a slot, a deadline; stored as running.
	if err := s.admit(c); err != nil {
		s.finish(c, s.notRun(c, err))
		return nil
	}
	defer s.leaveSlot(c)

	// Run, as the tool user, with what Prepare saw as preconditions.
	out, err := s.run(c, j)
	if errors.Is(err, errLeaving) {
		return nil // it goes on in the sandbox; the next daemon finishes it
	}
	if err == nil && out.Prepared != nil {
		if err = s.notThere(c); err == nil {
			return out.Prepared
		}
	}
	s.complete(c, out, err)
	return nil
}

// complete is the end of every call that was given to the agent, by this daemon or an
// earlier one.
func (s *Session) complete(c *call, out *agent.Outcome, err error) {
	o := s.ended(c, out, err)
	c.staleApproval(o)

	// 10. Hooks after, which may change what is said of it.
	s.hooksAfter(c, o)

	// 9. Truncate and spill; 11. record, events, observers; then the agent may
	// forget it.
	s.finish(c, o)
}

// maxReplacements is how often hooks may replace the input of one call.
const maxReplacements = 3

// replace takes the input that a hook wants instead of the call's own. The record
// says what really runs. An outcome is why it cannot be taken.
func (s *Session) replace(c *call, inv *tool.Invocation, round int) *outcome {
	if round >= maxReplacements {
		return failed(client.CodeDenied, "denied: hooks replaced the input more than %d times", maxReplacements)
	}
	timeout, wanted, err := s.deadline(&c.req, inv)
	if err == nil {
		err = c.flush()
	}
	if err == nil {
		err = s.m.store.Write(func(tx *store.Tx) error { return tx.ReplaceInput(c.id, inv.JSON) })
	}
	if err != nil {
		return s.notRun(c, err)
	}
	c.timeout, c.wanted = timeout, wanted
	c.mu.Lock()
	s.tenant.kept.Add(int64(len(inv.JSON) - len(c.row.Input)))
	c.row.Input = inv.JSON
	c.mu.Unlock()
	return nil
}

// staleApproval words the end of a call whose files changed between its approval
// and its run.
func (c *call) staleApproval(o *outcome) {
	if c.approved != "" && o.err != nil && o.err.Code == client.CodeStale {
		o.err = staleError(c.approved)
	}
}

// parse does step 1: everything about a request that can be wrong.
func (s *Session) parse(c *call) (*tool.Invocation, error) {
	if err := checkCall(&c.req); err != nil {
		return nil, err
	}
	if err := s.checkTimeout(&c.req); err != nil {
		return nil, err
	}
	parse := s.m.tools.Parse
	if c.hidden {
		parse = s.m.tools.ParseHidden
	}
	inv, err := parse(c.req.Tool, c.req.Input)
	if bad, ok := errors.AsType[*client.Error](err); ok && !c.hidden {
		c.malformed = bad
		return s.m.tools.Malformed(c.req.Tool, c.req.Input), nil
	}
	if err != nil {
		return nil, err
	}
	s.translate(c, inv)
	if c.timeout, c.wanted, err = s.deadline(&c.req, inv); err != nil {
		return nil, err
	}
	if inv.Lenient > 0 {
		s.m.observe(func(o Observer) { o.LenientConversion(inv.Tool.Name) })
	}
	return inv, nil
}

func checkCall(r *client.CallCreate) error {
	for _, f := range []struct{ name, value string }{
		{"key", r.Key}, {"message_id", r.MessageID}, {"agent", r.Agent}, {"model", r.Model},
	} {
		if len(f.value) > maxText || !plain.Printable(f.value) {
			return invalidRequest("%s is UTF-8 text without control characters, at most %d bytes", f.name, maxText)
		}
	}
	if len(r.Extra) > maxExtra {
		return invalidRequest("extra has %d bytes; at most %d", len(r.Extra), maxExtra)
	}
	if len(r.Extra) > 0 && !strictjson.IsObject(r.Extra) {
		return invalidRequest("extra is not a JSON object")
	}
	if r.WaitMillis != nil && *r.WaitMillis < 0 {
		return invalidRequest("wait_ms is %d; give 0 to answer at once, or leave it out to wait for the end", *r.WaitMillis)
	}
	return checkEnv(r.Env)
}

// checkTimeout refuses a timeout_ms that the session cannot give.
func (s *Session) checkTimeout(r *client.CallCreate) error {
	wall := time.Duration(s.limits.Wall).Milliseconds()
	if r.TimeoutMillis < 0 || r.TimeoutMillis > maxTTL.Milliseconds() {
		return invalidRequest("timeout_ms is %d; give 1 or more milliseconds, or leave it out", r.TimeoutMillis)
	}
	if wall > 0 && r.TimeoutMillis > wall {
		return invalidRequest("timeout_ms is %d; limits.wall of this session is %d ms", r.TimeoutMillis, wall)
	}
	return nil
}

// deadline gives the time that the call may run: its own timeout_ms, else bash's
// default, else the session's limit, above which it may not be. A timeout of bash's
// input, wanted, has no effect above that, which the answer says (see shortened).
func (s *Session) deadline(r *client.CallCreate, inv *tool.Invocation) (_ time.Duration, wanted int64, _ error) {
	if err := s.checkTimeout(r); err != nil {
		return 0, 0, err
	}
	wall := time.Duration(s.limits.Wall)
	own := time.Duration(r.TimeoutMillis) * time.Millisecond
	timed, ok := inv.Input.(tool.Timed)
	if !ok {
		if own == 0 {
			own = wall
		}
		return own, 0, nil
	}
	wanted = timed.Timeout()
	switch def := s.m.settings.Load().BashTimeout; {
	case own > 0:
		return own, wanted, nil
	case wanted > 0:
		return wall, wanted, nil // the tool keeps its own
	case wall > 0 && (def <= 0 || def > wall):
		return wall, 0, nil
	default:
		return def, 0, nil
	}
}

// timeouts are the time that a call of bash was given, and the most that its input could
// have asked for; 0 = no bound.
func (c *call) timeouts() (given, most time.Duration) {
	given, most = c.timeout, time.Duration(c.s.limits.Wall)
	if c.req.TimeoutMillis > 0 {
		most = time.Duration(c.req.TimeoutMillis) * time.Millisecond
	}
	if c.wanted > 0 {
		if own := time.Duration(min(c.wanted, 1<<40)) * time.Millisecond; given == 0 || own < given {
			given = own
		}
	}
	return given, most
}

// shortened says that the call was not given the time that its input asks for; ""
// where it was.
func (c *call) shortened() string {
	most := time.Duration(c.s.limits.Wall).Milliseconds()
	if most <= 0 || c.wanted <= most {
		return ""
	}
	return fmt.Sprintf("(timeout %d was cut to %d ms, the most that this session allows)", c.wanted, most)
}

// prepare does step 5, for calls whose paths must be resolved.
func (s *Session) prepare(c *call, inv *tool.Invocation, a tool.Access) (*run.Prepared, error) {
	if !a.Prepare {
		return nil, nil
	}
	r := prepareRequest(s.request(c, inv, nil), inv, a)
	return s.agent.Prepare(c.ctx, r)
}

// prepareRequest adds the paths that are to be resolved, where the agent does not find
// them in the input.
func prepareRequest(r agent.Request, inv *tool.Invocation, a tool.Access) agent.Request {
	if _, ok := inv.Input.(tool.Placed); ok {
		r.Paths = a.Paths()
		// What is not resolved is judged as leading anywhere.
		r.Paths = r.Paths[:min(len(r.Paths), run.MaxPaths)]
	}
	return r
}

// request is what the agent is asked.
func (s *Session) request(c *call, inv *tool.Invocation, prep *run.Prepared) agent.Request {
	return agent.Request{
		CallID: c.id, Tool: inv.AgentTool(), Input: inv.JSON,
		Settings: s.toolSettings(c, inv.Tool),
		Env:      envList(c.req.Env), TimeoutMillis: c.timeout.Milliseconds(),
		MaxOutput: c.maxOutput, Prepared: prep, Split: c.stream.Split,
	}
}

// toolSettings are what the tool's half in the sandbox has to know: its part of the
// configuration, or for a tool that shows files which the call does not name, which
// of them it must not show.
func (s *Session) toolSettings(c *call, d *tool.Definition) json.RawMessage {
	if d.Shows == tool.ShowsNone {
		return s.m.settings.Load().ToolSettings[d.Name]
	}
	content, names := s.judge.Rules(c.profile).ShownTo(s.snapshotRow().Worktree.Target)
	if d.Shows == tool.ShowsNames {
		return names
	}
	return content
}

// admit does step 8: it waits for a slot of the session and stores the call as
// running. leaveSlot gives the slot back.
func (s *Session) admit(c *call) error {
	select {
	case s.slots <- struct{}{}:
	default:
		if err := c.flush(); err != nil {
			return err
		}
		select {
		case s.slots <- struct{}{}:
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
	}
	c.slot = true
	err := context.Cause(c.ctx) // it may have ended at the same time
	if err == nil {
		err = c.start()
	}
	if err != nil {
		s.leaveSlot(c)
	}
	return err
}

// leaveSlot lets another call run in the place of c, if c has one.
func (s *Session) leaveSlot(c *call) {
	if c.slot {
		c.slot = false
		<-s.slots
	}
}

// run runs the tool.
func (s *Session) run(c *call, j *judge.Judgement) (*agent.Outcome, error) {
	c.watchDeadline()
	defer func() { c.stopWatch() }()
	r := s.request(c, j.Inv, j.Prep)
	if j.Prep != nil {
		for _, t := range j.Prep.Targets {
			if t.Write {
				c.writes = append(c.writes, t.Path)
			}
		}
	}
	if j.Provided || !c.bound && len(c.writes) > 0 {
		r = askProvided(r, j.Inv, j.Access, j.Prep)
	}
	c.out.Begin()
	return s.agent.Run(c.ctx, r, sink{c})
}

// sink takes what the running call sends.
type sink struct{ c *call }

// Output implements agent.Sink.
func (k sink) Output(offset int64, stderr bool, p []byte) error { return k.c.output(offset, stderr, p) }

// Offset implements agent.Follower.
func (k sink) Offset() int64 { return k.c.out.Offset() }

// Safe implements agent.Follower.
func (k sink) Safe() int64 { return k.c.out.Safe() }

// Metadata implements agent.Sink.
func (k sink) Metadata(m map[string]any) { k.c.progress(m) }
