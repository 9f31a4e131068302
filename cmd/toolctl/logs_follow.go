package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/toold/toold/client"
)

// logsFollower shows the calls of a session as they run. Calls run at the same time,
// so each line of output has the id of its call in front.
type logsFollower struct {
	*sessionLogsCommand
	client  *client.Client
	session string // its id

	seen map[string]bool // calls; used by the loop of events alone
	wait sync.WaitGroup  // for the calls that are followed

	mu     sync.Mutex // guards standard output and failed
	failed error      // the first write or request that failed
}

// followAll shows the calls that there are, and then those that come, until the
// session is over.
func (s *sessionLogsCommand) followAll(ctx context.Context, c *client.Client, ref string) error {
	session, err := c.GetSession(ctx, ref)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	f := &logsFollower{sessionLogsCommand: s, client: c, session: session.ID, seen: map[string]bool{}}
	err = await(ctx, c, client.EventQuery{Session: session.ID}, func(e *client.Event) (bool, error) { return f.look(ctx, e) })
	if err != nil {
		stop()
	}
	f.wait.Wait()
	if interruption(ctx) != nil {
		return nil // Ctrl-C is how it ends
	}
	if err == nil {
		err = f.failure()
	}
	return err
}

// look takes up the calls that are new, and says whether there can be no more. At the
// beginning of a stream of events, e is nil and it looks at all of them.
func (f *logsFollower) look(ctx context.Context, e *client.Event) (last bool, err error) {
	switch {
	case e == nil:
		calls, err := listCalls(ctx, f.client, f.session, client.CallQuery{Tool: f.tool})
		if err != nil {
			return false, err
		}
		for i := range calls {
			f.take(ctx, &calls[i])
		}
	case e.Call != "" && !f.seen[e.Call]:
		call, err := f.client.GetCall(ctx, e.Call)
		if err != nil && !isNotFound(err) {
			return false, err
		}
		if err == nil && (f.tool == "" || f.tool == call.Tool) {
			f.take(ctx, call)
		}
	}
	if e != nil && e.Type != client.EventSessionEnded && e.Type != client.EventSessionLost {
		return false, f.failure()
	}
	session, err := f.client.GetSession(ctx, f.session)
	if err != nil {
		return false, err
	}
	return over(session), f.failure()
}

func (f *logsFollower) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// take shows a call once: as it is, or as it runs.
func (f *logsFollower) take(ctx context.Context, call *client.Call) {
	switch {
	case f.seen[call.ID]:
	case call.Finished():
		f.locked(func() error { return f.whole(call) })
	default:
		f.wait.Go(func() { f.follow(ctx, call) })
	}
	f.seen[call.ID] = true
}

// locked writes without another call in between, and keeps the first failure.
func (f *logsFollower) locked(write func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := write(); err != nil && f.failed == nil {
		f.failed = err
	}
}

// whole prints a call that has finished, with its output.
func (f *logsFollower) whole(call *client.Call) error {
	return f.printNext(view{data: call, names: []string{call.ID}, text: func(w io.Writer) { f.log(w, []client.Call{*call}) }})
}

// follow shows the output of a call until it has finished. A daemon that restarts
// does not end it.
func (f *logsFollower) follow(ctx context.Context, call *client.Call) {
	name := line(shortCall(call.ID))
	if f.format == formatTable {
		f.locked(func() error {
			_, err := fmt.Fprintf(f.stdout, "%s\n", strings.TrimSpace(fmt.Sprintf("%s %s: %s %s", name, line(call.Tool), line(string(call.Status)), line(call.Title))))
			return err
		})
	}
	out := &prefixed{f: f, prefix: name + " | "}
	safe := newScreen(out)
	for e, err := range f.client.FollowCall(ctx, call.ID, 0) {
		var ended client.Call
		var o client.Output
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && e.Type == "output":
			if err = json.Unmarshal(e.Data, &o); err == nil && f.format == formatTable && !f.short {
				_, _ = safe.Write(o.Bytes()) // locked keeps its failures
			}
		case err == nil:
			err = json.Unmarshal(e.Data, &ended)
		}
		if err != nil {
			f.locked(func() error { return err })
			return
		}
		if ended.ID != "" {
			_ = safe.Flush()
			out.end()
			f.locked(func() error { return f.ended(name, &ended) })
		}
	}
}

func (f *logsFollower) ended(name string, call *client.Call) error {
	return f.printNext(view{data: call, names: []string{call.ID}, text: func(w io.Writer) {
		result, _ := callResult(call)
		fmt.Fprintf(w, "%s %s: %s %s %s\n", name, line(call.Tool), result, callTook(call), line(call.Title))
		notes := remarks(call)
		if call.Error != nil {
			notes = append(notes, call.Error.Text())
		}
		for _, text := range notes {
			for l := range strings.Lines(lines(text)) {
				fmt.Fprintf(w, "%s %s: %s\n", name, line(call.Tool), strings.TrimSuffix(l, "\n"))
			}
		}
	}})
}

// shortCall is the part of a call's id that says when it was made, to 16 ns.
func shortCall(id string) string { return id[:min(len(id), len("call_")+12)] }

// prefixed writes whole lines with the name of their call in front, so that no output
// can look like another's, or like a line of toolctl's own. It is given what a screen
// gives, which is safe to show.
type prefixed struct {
	f      *logsFollower
	prefix string
	held   []byte // the beginning of a line
}

// maxHeld is how long a line may be before it is shown without its end.
const maxHeld = 16 << 10

// Write implements io.Writer.
func (p *prefixed) Write(b []byte) (int, error) {
	p.held = append(p.held, b...)
	for {
		n := bytes.IndexByte(p.held, '\n') + 1
		if n == 0 && len(p.held) <= maxHeld {
			return len(b), nil
		}
		if n == 0 {
			n = maxHeld
		}
		p.show(bytes.TrimSuffix(p.held[:n], []byte("\n")))
		p.held = p.held[n:]
	}
}

func (p *prefixed) show(l []byte) {
	p.f.locked(func() error {
		_, err := fmt.Fprintf(p.f.stdout, "%s%s\n", p.prefix, l)
		return err
	})
}

// end shows a last line that has no newline.
func (p *prefixed) end() {
	if len(p.held) > 0 {
		p.show(p.held)
		p.held = nil
	}
}
