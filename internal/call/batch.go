package call

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/answer"
	"github.com/toold/toold/internal/call/local"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// batch makes the calls of a batch and waits for their ends. Each is a call of its own, which
// goes through all steps; only in the number of open calls the batch counts for them, since
// it would wait for room for ever otherwise.
func (st *steps) batch(ctx context.Context, in *tool.Batch, out *local.Out) (*run.Result, error) {
	of, ok := st.live.find(out.Call)
	if !ok {
		return nil, fmt.Errorf("batch %s is not a call", out.Call)
	}
	b := &batch{steps: st, of: of, out: out, parts: make([]part, len(in.Calls))}
	for i, c := range in.Calls {
		b.parts[i] = b.plan(i, c)
	}
	b.run(ctx)
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return b.result(), nil
}

// maxToolShown bounds the name that a call of a batch gives, in bytes.
const maxToolShown = 64

// batch is a batch that runs.
type batch struct {
	*steps
	of    *Call
	out   *local.Out
	parts []part

	mu   sync.Mutex // guards done, and that progress is told in order
	done int
}

// part is one call of a batch.
type part struct {
	tool    string
	refused *client.Error // why there is no call
	req     client.CallCreate
	files   map[string]bool // that it names → it changes it
	after   []int           // parts before it that must have ended
	over    chan struct{}   // closed when it has

	// Valid once it is over.
	end      *client.Call // nil if it was refused
	attached int          // attachments that it had
}

// plan says what is done for one call, and after which others.
func (b *batch) plan(i int, c tool.BatchCall) part {
	p := part{tool: c.Tool, over: make(chan struct{})}
	if i >= tool.MaxBatch {
		p.refused = answer.Of(fault.Input.Errorf("a batch has at most %d calls, and this is number %d", tool.MaxBatch, i+1).
			Next("make it in another batch"))
		return p
	}
	inv, err := b.daemon.Tools.Parse(c.Tool, c.Input)
	if err == nil {
		if _, nested := inv.Input.(*tool.Batch); nested {
			p.refused = answer.Of(fault.Input.Errorf("a batch has no batch in it").Next("put its calls into this one"))
			return p
		}
		row := b.place.Row()
		Translate(&row, inv)
		p.files = b.filesOf(inv)
	} // else the call says what is wrong with it
	from := b.of.snapshot()
	p.req = client.CallCreate{
		Tool: c.Tool, Input: c.Input, MessageID: from.MessageID, Agent: from.Agent, Model: from.Model, Extra: from.Extra,
		Typed: from.Typed, Env: b.of.req.Env,
	}
	for j := range i {
		if conflict(b.parts[j].files, p.files) {
			p.after = append(p.after, j)
		}
	}
	return p
}

// filesOf are the files that a call names, as its input has them.
func (b *batch) filesOf(inv *tool.Invocation) map[string]bool {
	files := make(map[string]bool)
	a := inv.Input.Access(b.reader(nil))
	for _, r := range a.Requests {
		if r.Path != "" && !r.Search {
			file := policy.Under(b.place.Row().Worktree.Target, r.Path)
			files[file] = files[file] || r.Write
		}
	}
	return files
}

// conflict reports whether one of two calls changes a file that the other names.
func conflict(a, b map[string]bool) bool {
	for file, writes := range a {
		if others, ok := b[file]; ok && (writes || others) {
			return true
		}
	}
	return false
}

// run makes the calls. It returns when all have ended, or at once where the daemon leaves.
func (b *batch) run(ctx context.Context) {
	var all sync.WaitGroup
	for i := range b.parts {
		p := &b.parts[i]
		if p.refused != nil {
			close(p.over)
			continue
		}
		all.Go(func() {
			defer close(p.over)
			for _, j := range p.after {
				<-b.parts[j].over
			}
			if ctx.Err() == nil {
				b.make(ctx, p)
			}
		})
	}
	all.Wait()
}

// make makes one call, and ends it if ctx does.
func (b *batch) make(ctx context.Context, p *part) {
	c := newCall(b.site, p.req, false, false)
	c.by, c.profile = b.of.by, b.of.profile
	c.batch, c.share = b.of, min(len(b.parts), tool.MaxBatch)
	stop := context.AfterFunc(ctx, func() { c.abort(run.ReasonAborted) })
	defer stop()
	b.do(c)
	if c.err != nil { // it has no record
		p.refused = b.clientError(c.id, c.err)
		return
	}
	p.end = c.snapshot()
	p.attached, p.end.Attachments = len(p.end.Attachments), nil // those may be large
	b.progress()
}

// progress tells how many have ended.
func (b *batch) progress() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done++
	b.out.Progress(map[string]any{"done": b.done, "calls": len(b.parts)})
}

// result puts the results together. The ids of calls are only in the metadata, so that equal
// batches have equal answers.
func (b *batch) result() *run.Result {
	var text strings.Builder
	failed, looped, list := 0, 0, make([]map[string]any, 0, len(b.parts))
	res := &run.Result{}
	for i := range b.parts {
		p := &b.parts[i]
		v, about := p.ended()
		list = append(list, about)
		how := "ok"
		if v.IsError {
			failed, how = failed+1, "failed"
		}
		if v.Error != nil {
			how = string(v.Error.Code)
			if v.Error.Code == client.CodeDoomLoop {
				looped++
			}
		}
		head := fmt.Sprintf("[%d/%d] %s: %s", i+1, len(b.parts), plain.Cut(plain.Line(p.tool), maxToolShown), how)
		if t := plain.Line(v.Title); t != "" {
			head += ": " + t
		}
		line(&text, head)
		line(&text, v.Output)
		if p.attached > 0 {
			line(&text, fmt.Sprintf("[%s not shown in a batch: make this call by itself]", plain.Count(p.attached, "attachment is", "attachments are")))
		}
		text.WriteByte('\n')
	}
	res.Title = fmt.Sprintf("%s, %d failed", plain.Count(len(b.parts), "call", "calls"), failed)
	line(&text, "("+res.Title+")")
	res.Output = text.String()
	res.Metadata = map[string]any{"calls": list, "failed": failed}
	if looped > 0 {
		res.Metadata[tool.BatchLooped] = looped
	}
	return res
}

// ended is how a part ended, and what the metadata says of it.
func (p *part) ended() (*client.Call, map[string]any) {
	v := p.end
	if v == nil {
		v = &client.Call{Tool: p.tool, Status: client.CallError, IsError: true, Error: p.refused, Output: p.refused.Text()}
	}
	about := map[string]any{"tool": v.Tool, "status": string(v.Status), "is_error": v.IsError}
	if v.ID != "" {
		about["id"] = v.ID
	}
	if v.Error != nil {
		about["code"] = string(v.Error.Code)
	}
	return v, about
}
