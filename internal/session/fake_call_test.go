package session

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toold/toold/internal/judge"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/tool/run"
)

// fakeCall is a call in the agent. It keeps unacknowledged output and stops at
// the bound that the daemon gave.
type fakeCall struct {
	b   *fakeBox
	id  string
	req agent.Request

	mu      sync.Mutex // guards the fields below
	base    int64
	out     []byte
	stderr  []bool
	meta    map[string]any
	outcome *agent.Outcome
	stopped run.Reason
	halt    chan struct{}
	changed chan struct{}
}

func newFakeCall(b *fakeBox, r agent.Request) *fakeCall {
	return &fakeCall{b: b, id: r.CallID, req: r, halt: make(chan struct{}), changed: make(chan struct{})}
}

// ofRules reports whether the call reads the rules file of the worktree.
func (c *fakeCall) ofRules() bool { return strings.Contains(string(c.req.Input), judge.WorktreeRules) }

func (c *fakeCall) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *fakeCall) stop(reason run.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped == "" {
		c.stopped = reason
		close(c.halt)
	}
}

// print adds output; it waits while too much is not acknowledged.
func (c *fakeCall) print(stderr bool, p string) bool {
	for len(p) > 0 {
		c.mu.Lock()
		if room := output.Unacked - len(c.out); room > 0 {
			n := min(room, len(p))
			c.out = append(c.out, p[:n]...)
			c.stderr = append(c.stderr, slices.Repeat([]bool{stderr}, n)...)
			p = p[n:]
			c.wake()
			c.mu.Unlock()
			continue
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-c.halt:
			return false
		}
	}
	return true
}

func (c *fakeCall) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-c.halt:
		return false
	}
}

// work plays the input: for bash a script of commands separated by ";", for
// other tools an answer that quotes the input.
func (c *fakeCall) work() {
	if c.req.Tool != "bash" && c.req.Tool != "file_get" {
		c.finish(&agent.Outcome{Result: c.result()})
		return
	}
	var in struct {
		Command string `json:"command"`
		Path    string `json:"path"`
	}
	_ = json.Unmarshal(c.req.Input, &in)
	exit := &run.Exit{Reason: run.ReasonExit, DurationMillis: 1, CPUMillis: 2, MaxMemoryBytes: 3, IOBytes: 4}
	var title string
	for step := range strings.SplitSeq(in.Command, ";") {
		if !c.step(strings.TrimSpace(step), exit) {
			break
		}
	}
	if c.ofRules() {
		c.b.host.mu.Lock()
		text := c.b.host.rules
		c.b.host.mu.Unlock()
		c.print(false, text)
		c.finish(&agent.Outcome{Result: &run.Result{}})
		return
	}
	if in.Path != "" {
		c.print(false, "content of "+in.Path)
		c.finish(&agent.Outcome{Result: &run.Result{}})
		return
	}
	c.mu.Lock()
	if c.stopped != "" {
		exit.Reason, exit.Code, exit.Signal = c.stopped, -1, "SIGKILL"
	}
	c.mu.Unlock()
	c.finish(&agent.Outcome{Exit: exit, Result: &run.Result{
		Title: title + in.Command, Output: run.Trailer(exit, run.TrailerInfo{}), Metadata: exit.Metadata(),
		IsError: exit.Reason != run.ReasonExit || exit.Code != 0,
	}})
}

func (c *fakeCall) result() *run.Result {
	var in struct {
		FilePath string `json:"file_path"`
		From     string `json:"from"`
	}
	_ = json.Unmarshal(c.req.Input, &in)
	if strings.Contains(in.FilePath, "huge") { // a program that the tool has run for it was killed
		c.b.oom.Add(1)
	}
	switch {
	case strings.Contains(in.FilePath, "long"):
		return &run.Result{Title: in.FilePath, Output: strings.Repeat("a line of text\n", 5000)}
	case strings.Contains(in.FilePath, "endless"):
		return &run.Result{Title: in.FilePath, Output: strings.Repeat("a line of text\n", 40000)}
	case strings.Contains(in.FilePath, "picture"):
		return &run.Result{Title: in.FilePath, Attachments: []run.Attachment{{Filename: "a/b.png", MIME: "image/png", Data: []byte("png")}, {MIME: "bad mime"}}}
	case strings.Contains(in.FilePath, "missing"):
		return run.Failed(in.FilePath, "no such file")
	case in.From != "":
		b, err := os.ReadFile(c.b.spec.OutputDir + strings.TrimPrefix(in.From, sandbox.OutputDir))
		if err != nil {
			return run.Failed("put", "%v", err)
		}
		return &run.Result{Title: "put", Output: string(b)}
	}
	return &run.Result{Title: in.FilePath, Output: "did " + string(c.req.Input), Metadata: map[string]any{"truncated": true, "output_path": "/etc/shadow", "total_lines": 7}}
}

func (c *fakeCall) finish(o *agent.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o.OutputEnd = c.base + int64(len(c.out))
	c.outcome = o
	c.wake()
}

// step does one command and reports whether the script goes on.
func (c *fakeCall) step(s string, exit *run.Exit) bool {
	var n, ms int
	var word string
	scan := func(format string, into ...any) bool {
		k, _ := fmt.Sscanf(s, format, into...)
		return k == len(into)
	}
	switch {
	case scan("lines %d %d", &n, &ms):
		for i := range n {
			if !c.print(false, fmt.Sprintf("line %d\n", i)) || !c.pause(time.Duration(ms)*time.Millisecond) {
				return false
			}
		}
	case scan("big %d", &n):
		chunk := strings.Repeat("0123456789abcde\n", 4096)
		for n > 0 {
			if !c.print(false, chunk[:min(n, len(chunk))]) {
				return false
			}
			n -= len(chunk)
		}
	case scan("giant %d", &n):
		return c.print(false, strings.Repeat("x", n))
	case scan("echo %s", &word):
		return c.print(false, word+"\n")
	case scan("err %s", &word):
		return c.print(true, word+"\n")
	case scan("bytes %x", &word):
		return c.print(false, word)
	case scan("sleep %d", &ms):
		return c.pause(time.Duration(ms) * time.Millisecond)
	case scan("exit %d", &n):
		exit.Code = n
		return false
	case scan("signal %s", &word):
		exit.Reason, exit.Code, exit.Signal = run.ReasonSignal, -1, word
		return false
	case s == "change":
		c.b.mu.Lock()
		defer c.b.mu.Unlock()
		return c.print(false, fmt.Sprintf("state %d\n", c.b.change))
	case s == "progress":
		c.mu.Lock()
		c.meta = map[string]any{"step": 1.0}
		c.wake()
		c.mu.Unlock()
	case s == "hold":
		c.b.mu.Lock()
		hold := c.b.hold
		c.b.mu.Unlock()
		c.b.holding.Add(1)
		defer c.b.holding.Add(-1)
		select {
		case <-hold:
		case <-c.halt:
			return false
		}
	case s == "long":
		exit.DurationMillis = 10 // not brief
	case s == "oom":
		c.b.oom.Add(1)
		exit.Code = 137
		return false
	case s == "forkbomb":
		c.b.pids.Add(5)
		exit.Code = 254
		return false
	case s == "agentoom": // in a sandbox whose agent keeps the limits
		exit.Code, exit.Signal, exit.Reason = -1, "SIGKILL", run.ReasonMemory
		return false
	case s == "agentforkbomb":
		exit.Code, exit.Reason = 254, run.ReasonPIDs
		return false
	case s == "env":
		return c.print(false, strings.Join(append(slices.Clone(c.b.hello.Env), c.req.Env...), "\n")+"\n")
	}
	return true
}
