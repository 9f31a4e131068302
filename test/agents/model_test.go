package agents

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// step is one call that the scripted model makes.
type step struct {
	tool  string
	input in
	// want are texts that the result must have.
	want []string
	// during, when set, runs when the model has asked for the call.
	during func()
	// before, when set, runs before the model asks for the call, and got with the result.
	before func()
	got    func(result string)
	// beside are calls of the same answer. Their order does not matter, and of each only
	// tool, input and got are used.
	beside []step
	// until, when set, has the call made again until its result has this text.
	until string
}

// maxAgain bounds how often a step is made again.
const maxAgain = 12

// model is a scripted one, in the protocols of OpenAI: Chat Completions and Responses. It
// makes its steps one by one, looks at what came back, and then says that it is done.
type model struct {
	t    *testing.T
	tool func(step string) (name, namespace string) // how the agent calls a tool
	*httptest.Server

	mu    sync.Mutex // guards what follows
	steps []step
	at    int // the step whose result is awaited, counted from 1; 0 before the first
	again int
	asked int             // the number of the call that the step makes now
	tools map[string]bool // that the agent offers
}

func newModel(t *testing.T, tool func(string) (name, namespace string), steps []step) *model {
	m := &model{t: t, tool: tool, steps: steps, tools: map[string]bool{}}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

// ServeHTTP answers one request for a completion.
func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the agent was stopped
	}
	var q struct {
		Tools    []json.RawMessage
		Messages []struct {
			Role    string
			ID      string `json:"tool_call_id"`
			Content json.RawMessage
		}
		Input []struct {
			Type   string
			ID     string `json:"call_id"`
			Output json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &q); err != nil {
		http.Error(w, "no model here", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	responses := strings.HasSuffix(r.URL.Path, "/responses")
	if len(q.Tools) == 0 { // such as a title of the conversation
		say(w, responses, "done")
		return
	}
	results := make(map[string]string)
	for _, msg := range q.Messages {
		if msg.Role == "tool" {
			results[msg.ID] = plainText(msg.Content)
		}
	}
	for _, item := range q.Input {
		if item.Type == "function_call_output" {
			results[item.ID] = plainText(item.Output)
		}
	}
	m.mu.Lock()
	for _, tool := range q.Tools {
		m.offered(tool, "")
	}
	next, n := m.next(results)
	m.asked = n
	m.mu.Unlock()
	if next == nil {
		say(w, responses, "done")
		return
	}
	if next.during != nil {
		go next.during()
	}
	var asked []asked
	for i, s := range append([]step{*next}, next.beside...) {
		asked = append(asked, m.ask(s, n+i))
	}
	call(w, responses, asked)
}

// asked is a call as an answer of the model has it.
type asked struct{ id, name, namespace, args string }

func (m *model) ask(s step, n int) asked {
	a := asked{id: callID(n)}
	a.name, a.namespace = m.tool(s.tool)
	args, err := json.Marshal(s.input)
	if err != nil {
		m.t.Error(err)
	}
	a.args = string(args)
	return a
}

func callID(n int) string { return fmt.Sprintf("c%d", n) }

// offered notes the names of a tool, or of a namespace and those in it.
func (m *model) offered(tool json.RawMessage, within string) {
	var t struct {
		Type     string
		Name     string
		Function struct{ Name string }
		Tools    []json.RawMessage
	}
	_ = json.Unmarshal(tool, &t) // tools of other kinds have no name, but a type
	m.tools[within+cmp.Or(t.Name, t.Function.Name, t.Type)] = true
	for _, inner := range t.Tools {
		m.offered(inner, t.Name+"/")
	}
}

// goesOn is what an answer says that does not wait for its call.
var goesOn = regexp.MustCompile(`call the tool wait with (\{[^}]*\})`)

// next looks at the results of the step before and gives the next one; nil at the end.
func (m *model) next(results map[string]string) (*step, int) {
	if m.at > 0 {
		s := &m.steps[m.at-1]
		result := results[callID(m.asked)]
		if more := goesOn.FindStringSubmatch(result); more != nil && m.again < maxAgain {
			m.again++
			wait := &step{tool: "wait", input: in{}}
			_ = json.Unmarshal([]byte(strings.ReplaceAll(more[1], `\"`, `"`)), &wait.input) // what it lacks, the tool says
			return wait, 100*m.at + m.again
		}
		if s.until != "" && !strings.Contains(result, s.until) && m.again < maxAgain {
			m.again++
			return s, 100*m.at + m.again
		}
		for i, made := range append([]step{*s}, s.beside...) {
			if made.got != nil {
				made.got(results[callID(m.asked+i)])
			}
		}
		for _, want := range append(s.want, s.until) {
			if !strings.Contains(result, want) {
				m.t.Errorf("step %d, %s %v: the model was told %q, want %q in it", m.at, s.tool, s.input, result, want)
			}
		}
	}
	m.again = 0
	if m.at++; m.at > len(m.steps) {
		return nil, 0
	}
	if before := m.steps[m.at-1].before; before != nil {
		before()
	}
	return &m.steps[m.at-1], 100 * m.at
}

// finished fails unless all steps were made.
func (m *model) finished() {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at <= len(m.steps) {
		m.t.Errorf("the agent stopped at step %d of %d; it offers %v", m.at, len(m.steps), m.tools)
	}
}

// plainText is a result as text: a string, or a list of parts.
func plainText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []struct{ Text string }
	if json.Unmarshal(raw, &parts) == nil {
		for _, p := range parts {
			s += p.Text
		}
		return s
	}
	return string(raw)
}

func event(w io.Writer, name string, data any) {
	b, _ := json.Marshal(data)
	if name != "" {
		fmt.Fprintf(w, "event: %s\n", name)
	}
	fmt.Fprintf(w, "data: %s\n\n", b)
}

func chunk(w io.Writer, delta in, finish any) {
	event(w, "", in{"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []in{{"index": 0, "delta": delta, "finish_reason": finish}}})
}

// answer sends the items of one answer of Responses.
func answer(w io.Writer, items ...in) {
	event(w, "response.created", in{"type": "response.created", "response": in{"id": "r"}})
	for _, item := range items {
		event(w, "response.output_item.done", in{"type": "response.output_item.done", "item": item})
	}
	event(w, "response.completed", in{"type": "response.completed", "response": in{
		"id": "r", "usage": in{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
	}})
}

func say(w io.Writer, responses bool, text string) {
	if responses {
		answer(w, in{"type": "message", "role": "assistant", "id": "m", "content": []in{{"type": "output_text", "text": text}}})
		return
	}
	chunk(w, in{"role": "assistant", "content": text}, nil)
	chunk(w, in{}, "stop")
	fmt.Fprint(w, "data: [DONE]\n\n")
}

func call(w io.Writer, responses bool, calls []asked) {
	var items, chats []in
	for i, c := range calls {
		item := in{"type": "function_call", "id": "f" + c.id, "call_id": c.id, "name": c.name, "arguments": c.args}
		if c.namespace != "" {
			item["namespace"] = c.namespace
		}
		items = append(items, item)
		chats = append(chats, in{"index": i, "id": c.id, "type": "function", "function": in{"name": c.name, "arguments": c.args}})
	}
	if responses {
		answer(w, items...)
		return
	}
	chunk(w, in{"role": "assistant", "tool_calls": chats}, nil)
	chunk(w, in{}, "tool_calls")
	fmt.Fprint(w, "data: [DONE]\n\n")
}
