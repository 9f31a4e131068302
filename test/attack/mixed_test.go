package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// worker makes calls in a session of its own, one after the other, whatever becomes of the daemon.
// Each writes a line with its number to the file log of the worktree.
type worker struct {
	name    string
	c       *client.Client
	session string
	make    func(n int) client.CallCreate // the call that writes a line with n

	asked, done int
	over        map[int]bool // calls that have ended: true of those that have run to their end
}

// one makes the next call, and asks for it by its key until it has ended.
func (w *worker) one(ctx context.Context) error {
	w.asked++
	r := w.make(w.asked)
	r.Key = fmt.Sprint(w.name, w.asked)
	for {
		c, err := w.c.CreateCall(ctx, w.session, r, client.CallOptions{})
		e, answered := errors.AsType[*client.Error](err)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (!answered || e.Code == client.CodeOverloaded):
			time.Sleep(5 * time.Millisecond)
			continue
		case err != nil:
			return fmt.Errorf("%s, call %d: %w", w.name, w.asked, err)
		case !c.Finished():
			time.Sleep(5 * time.Millisecond)
			continue
		}
		w.over[w.asked] = c.Status == client.CallCompleted && !c.IsError
		if w.over[w.asked] {
			w.done++
		}
		return nil
	}
}

// check sees that each call that has ended well has written its line, once, and each other one at
// most once.
func (w *worker) check(t *testing.T, log string) {
	t.Helper()
	lines := make(map[string]int)
	for line := range strings.Lines(log) {
		lines[strings.TrimSuffix(line, "\n")]++
	}
	for n, well := range w.over {
		if got := lines[fmt.Sprint(n)]; got > 1 || well && got != 1 {
			t.Errorf("%s: call %d, which ended well: %t, wrote %d lines", w.name, n, well, got)
		}
	}
}

func bashCall(command string) client.CallCreate {
	input, err := json.Marshal(map[string]string{"command": command})
	if err != nil {
		panic(err)
	}
	return client.CallCreate{Tool: "bash", Input: input}
}

// TestChaosMixed: a daemon is killed at random moments while sessions of all kinds work: overlay
// with checkpoints before each call, caches, network, batches, questions that a person answers, an
// agent that speaks MCP. No session is lost, no call that has ended well is without its effect, and
// none has it twice.
func TestChaosMixed(t *testing.T) {
	seed := chaosSeed(t)
	random := rand.New(rand.NewPCG(seed, 2))
	r := newRig(t, nil, caches+asking+`
[network]
mode = "rules"

[profile.net.permission.network]
"*.allowed.example" = "allow"
`)
	echo := func(n int) client.CallCreate { return bashCall(fmt.Sprintf("sleep 0.0%d; echo %d >>log", n%5, n)) }
	tree := func() client.Worktree { return client.Worktree{Source: r.tree(t)} }
	overlay := tree()
	overlay.Mode = client.WorktreeOverlay
	var workers []*worker
	begin := func(name string, req client.SessionCreate, make func(n int) client.CallCreate) {
		t.Helper()
		x := r.session(t, r.a, req)
		o := client.Options{Socket: r.socket, Token: x.Token, HTTPTimeout: patience}
		if x.Token == "" {
			o.Tenant = "a"
		}
		c := client.New(o)
		t.Cleanup(c.Close)
		workers = append(workers, &worker{name: name, c: c, session: x.ID, make: make, over: map[int]bool{}})
	}
	begin("overlay", client.SessionCreate{Worktree: overlay}, func(n int) client.CallCreate {
		c := echo(n)
		c.MessageID = fmt.Sprint("message", n/2)
		return c
	})
	begin("caches", client.SessionCreate{Worktree: tree(), Caches: []client.CacheUse{{Name: "notes"}, {Name: "team"}}}, func(n int) client.CallCreate {
		return bashCall(fmt.Sprintf("echo %d >>/caches/notes/log && echo %[1]d >>/caches/team/log && echo %[1]d >>log", n))
	})
	begin("network", client.SessionCreate{Worktree: tree(), Profile: "net", Network: client.Network{Mode: "rules"}}, func(n int) client.CallCreate {
		return bashCall(fmt.Sprintf("curl -sS -m 20 http://denied.example/ >/dev/null 2>&1; [ $? != 28 ] && echo %d >>log", n))
	})
	begin("batch", client.SessionCreate{Worktree: tree()}, func(n int) client.CallCreate {
		input := fmt.Sprintf(`{"calls":[{"tool":"write","input":{"file_path":"a","content":"%d"}},{"tool":"bash","input":{"command":"echo %[1]d >>log"}},{"tool":"read","input":{"file_path":"a"}}]}`, n)
		return client.CallCreate{Tool: "batch", Input: []byte(input)}
	})
	// Who makes a call may not answer it.
	begin("asked", client.SessionCreate{Worktree: tree(), Profile: "ask", Token: true}, func(n int) client.CallCreate {
		return bashCall(fmt.Sprintf("echo %d >>log", n))
	})

	ctx, stop := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	for _, w := range workers {
		wait.Go(func() {
			for ctx.Err() == nil {
				if err := w.one(ctx); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wait.Go(func() { r.answerAll(ctx) })
	speakers := map[string]*speaker{}
	for name, connect := range map[string]func(session string) mcp.Transport{
		"mcp": func(session string) mcp.Transport {
			cmd := exec.Command(bin.toolctl, "--tenant", "a", "mcp", "--session", session)
			cmd.Env = append(os.Environ(), "TOOLD_SOCKET="+r.socket)
			return &mcp.CommandTransport{Command: cmd}
		},
		"mcp by http": func(session string) mcp.Transport {
			endpoint, h := client.New(client.Options{Socket: r.socket, Tenant: "a"}).MCP(session)
			return &mcp.StreamableClientTransport{Endpoint: endpoint, HTTPClient: h, DisableStandaloneSSE: true, MaxRetries: -1}
		},
	} {
		a := &speaker{session: r.session(t, r.a, client.SessionCreate{Worktree: tree()}).ID, connect: connect}
		speakers[name] = a
		wait.Go(func() { a.speak(ctx) })
	}

	rounds := testrig.Rounds(20)
	for range rounds {
		time.Sleep(time.Duration(random.IntN(250)) * time.Millisecond)
		r.kill(t)
		r.launch(t)
		must(t, r.daemon.Ready())
	}
	stop()
	wait.Wait()

	ids := map[string]string{}
	for name, a := range speakers {
		ids[name] = a.session
	}
	for _, w := range workers {
		ids[w.name] = w.session
	}
	for name, id := range ids {
		if s, err := r.a.GetSession(t.Context(), id); err != nil || s.State != client.SessionReady {
			t.Errorf("%s: the session is %+v, %v", name, s, err)
		}
	}
	made, err := r.a.Checkpoints(t.Context(), ids["overlay"])
	if err != nil || len(made.Items) == 0 && current.program != "runsc" { // which takes none while it runs
		t.Errorf("checkpoints before calls: %+v, %v", made, err)
	}
	var summary []string
	for _, w := range workers {
		w.check(t, call(t, r.a, w.session, "bash", map[string]any{"command": "cat log"}).Output)
		summary = append(summary, fmt.Sprintf("%s %d of %d", w.name, w.done, w.asked))
		if w.done == 0 {
			t.Errorf("%s: no call ended well", w.name)
		}
	}
	for name, a := range speakers {
		log := bash(t, r.a, a.session, "cat log").Output
		for n := range a.said.Load() {
			_, well := a.heard.Load(n)
			if got := strings.Count("\n"+log, fmt.Sprintf("\n%d\n", n)); got > 1 || well && got != 1 {
				t.Errorf("%s: call %d, which ended well: %t, wrote %d lines", name, n, well, got)
			}
		}
		summary = append(summary, fmt.Sprintf("%s %d, of which %d times progress was shown", name, a.said.Load(), a.shown.Load()))
	}
	t.Logf("%d kills, calls that ended well: %s", rounds, strings.Join(summary, ", "))
}

// answerAll allows what is asked, as a person would.
func (r *rig) answerAll(ctx context.Context) {
	c := client.New(client.Options{Socket: r.socket, Tenant: "a", HTTPTimeout: patience})
	defer c.Close()
	for ctx.Err() == nil {
		if list, err := c.ListApprovals(ctx, client.ApprovalQuery{}); err == nil {
			for _, a := range list.Items {
				_, _ = c.AnswerApproval(ctx, a.ID, client.ApprovalAnswer{Answer: client.AnswerOnce})
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// speaker makes calls as an agent does, by MCP.
type speaker struct {
	session     string
	connect     func(session string) mcp.Transport
	said, shown atomic.Int64 // calls, and how often progress of one was shown
	heard       sync.Map     // the numbers of those that it was told have ended well
}

// speak begins anew when its connection ends.
func (a *speaker) speak(ctx context.Context) {
	for ctx.Err() == nil {
		// What is shown while a call runs is a stream, which is cut off with the daemon.
		agent, err := mcp.NewClient(&mcp.Implementation{Name: "chaos"}, &mcp.ClientOptions{
			ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { a.shown.Add(1) },
		}).Connect(ctx, a.connect(a.session), nil)
		if err != nil { // no daemon is there
			time.Sleep(5 * time.Millisecond)
			continue
		}
		for ctx.Err() == nil {
			n := a.said.Add(1) - 1
			p := &mcp.CallToolParams{Name: "bash", Arguments: map[string]any{"command": fmt.Sprintf("echo %d; sleep 0.0%d; echo %[1]d >>log", n, n%9)}}
			p.SetProgressToken(n)
			got, err := agent.CallTool(ctx, p)
			if err != nil {
				break
			}
			if !got.IsError {
				a.heard.Store(n, true)
			}
		}
		_ = agent.Close()
	}
}
