package agents

import (
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
	// saw is got with all that the agent sends.
	saw func(q *question, result string)
	// beside are calls of the same answer. Their order does not matter, and of each only
	// tool, input and got are used.
	beside []step
	// until, when set, has the call made again until its result has this text.
	until string
}

// maxAgain bounds how often a step is made again.
const maxAgain = 12

// model is a scripted one that speaks all of wires. It
// makes its steps one by one, looks at what came back, and then says that it is done.
type model struct {
	t    *testing.T
	tool func(step string) (name, namespace string) // how the agent calls a tool
	*httptest.Server

	mu     sync.Mutex // guards what follows
	steps  []step
	at     int // the step whose result is awaited, counted from 1; 0 before the first
	again  int
	asked  int             // the number of the call that the step makes now
	tools  map[string]bool // that the agent offers
	offers []offer         // those of the last request that has some
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
	speaks := wireOf(r.URL.Path)
	if speaks == nil {
		http.Error(w, "no model here", http.StatusNotFound)
		return
	}
	q, err := speaks.read(body)
	if err != nil {
		http.Error(w, "no model here", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if speaks == (generate{}) {
		w.Header().Set("Content-Type", "application/json")
	}
	if len(q.offers) == 0 { // such as a title of the conversation
		speaks.say(w, "done")
		return
	}
	m.mu.Lock()
	m.offers = q.offers
	for _, o := range q.offers {
		m.tools[o.Name] = true
	}
	next, n := m.next(q)
	m.asked = n
	m.mu.Unlock()
	if next == nil {
		speaks.say(w, "done")
		return
	}
	if next.during != nil {
		go next.during()
	}
	var asked []asked
	for i, s := range append([]step{*next}, next.beside...) {
		asked = append(asked, m.ask(s, n+i))
	}
	speaks.call(w, asked)
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

// goesOn is what an answer says that does not wait for its call.
var goesOn = regexp.MustCompile(`call the tool wait with (\{[^}]*\})`)

// next looks at the results of the step before and gives the next one; nil at the end.
func (m *model) next(q *question) (*step, int) {
	results := q.results
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
			if made.saw != nil {
				made.saw(q, results[callID(m.asked+i)])
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
