package shipped

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// object is one of JSON.
type object = map[string]any

// Step is one call that a scripted model makes.
type Step struct {
	Tool  string
	Input map[string]any
	// Want are texts that the result must have.
	Want []string
	// During, when set, runs when the model has asked for the call.
	During func()
	// Before, when set, runs before the model asks for the call, and Got with the result.
	Before func()
	Got    func(result string)
	// Saw is got with all that the agent sends.
	Saw func(q *Question, result string)
	// Beside are calls of the same answer. Their order does not matter, and of each only
	// Tool, Input and Got are used.
	Beside []Step
	// Until, when set, has the call made again until its result has this text.
	Until string
}

// maxAgain bounds how often a step is made again.
const maxAgain = 12

// Script is what a model does.
type Script struct {
	// Tool is how the agent calls a tool of toold's.
	Tool  func(tool string) (name, namespace string)
	Steps []Step
	// Offered has the model end when it is not offered the tool of its next step.
	Offered bool
	// Failed is told what was not as a step wants it; nil where nobody is. It may be called
	// from any goroutine.
	Failed func(text string)
	// Heard, when set, is called with each question.
	Heard func(q *Question)
}

// Model is a scripted one on loopback that speaks all protocols that the agents do. It makes
// its steps one by one, looks at what came back, and then says that it is done.
type Model struct {
	URL    string
	script Script
	server *http.Server
	over   chan struct{} // closed when the server has ended

	mu     sync.Mutex // guards what follows
	at     int        // the step whose result is awaited, counted from 1; 0 before the first
	looked int        // steps whose result was looked at
	again  int
	asked  int // the number of the call that the step makes now
	count  int // of questions
	offers []Offer
	names  []string // of all tools that were offered
}

// NewModel starts one. Close ends it.
func NewModel(s Script) (*Model, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for an agent: %w", err)
	}
	m := &Model{URL: "http://" + l.Addr().String(), script: s, over: make(chan struct{})}
	m.server = &http.Server{Handler: m, ReadHeaderTimeout: time.Minute}
	go func() {
		defer close(m.over)
		_ = m.server.Serve(l) // until Close
	}()
	return m, nil
}

// Close ends the model, and connections to it.
func (m *Model) Close() {
	_ = m.server.Close() // of a listener nothing is left to do
	<-m.over
}

// Steps is how many steps the model has begun; one more than there are when it is through.
func (m *Model) Steps() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at
}

// Questions is how many questions were asked that offer tools.
func (m *Model) Questions() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count
}

// Names are those of all tools that the agent has offered.
func (m *Model) Names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(slices.Values(m.names))
}

// Offers are the tools of the last question that has some.
func (m *Model) Offers() []Offer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.offers
}

// maxQuestion bounds a question, in bytes.
const maxQuestion = 64 << 20

// ServeHTTP answers one request for a completion.
func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxQuestion))
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
	if m.script.Heard != nil {
		m.script.Heard(q)
	}
	if len(q.Offers) == 0 { // such as a title of the conversation
		speaks.say(w, "done")
		return
	}
	next, n := m.next(q)
	if next == nil {
		speaks.say(w, "done")
		return
	}
	if next.During != nil {
		go next.During()
	}
	var asked []Asked
	for i, s := range append([]Step{*next}, next.Beside...) {
		asked = append(asked, m.ask(s, n+i))
	}
	speaks.call(w, asked)
}

// Asked is a call as an answer of the model has it.
type Asked struct{ ID, Name, Namespace, Args string }

func (m *Model) ask(s Step, n int) Asked {
	a := Asked{ID: CallID(n)}
	a.Name, a.Namespace = m.script.Tool(s.Tool)
	args, err := json.Marshal(s.Input)
	if err != nil {
		m.failed("%s %v: %v", s.Tool, s.Input, err)
	}
	a.Args = string(args)
	return a
}

func (m *Model) failed(format string, args ...any) {
	if m.script.Failed != nil {
		m.script.Failed(fmt.Sprintf(format, args...))
	}
}

// CallID is the id of a call: that of step S, counted from 1, has the number 100·S, those beside it
// the next ones.
func CallID(n int) string { return fmt.Sprintf("c%d", n) }

// goesOn is what an answer says that does not wait for its call.
var goesOn = regexp.MustCompile(`call the tool wait with (\{[^}]*\})`)

// next looks at the results of the step before and gives the next one; nil at the end.
func (m *Model) next(q *Question) (next *Step, number int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count++
	m.offers = q.Offers
	for _, o := range q.Offers {
		if !slices.Contains(m.names, o.Name) {
			m.names = append(m.names, o.Name)
		}
	}
	defer func() { m.asked = number }()
	if m.at > 0 && m.at <= len(m.script.Steps) {
		s := &m.script.Steps[m.at-1]
		if more, n := m.further(s, q.Results[CallID(m.asked)]); more != nil {
			return more, n
		}
		if m.looked < m.at { // else the next step cannot be made, and the agent asks on
			m.looked = m.at
			m.look(s, q)
		}
	}
	m.again = 0
	if m.at < len(m.script.Steps) && m.script.Offered && !m.isOffered(m.script.Steps[m.at].Tool, q) {
		return nil, 0
	}
	if m.at = min(m.at, len(m.script.Steps)) + 1; m.at > len(m.script.Steps) {
		return nil, 0
	}
	s := &m.script.Steps[m.at-1]
	if s.Before != nil {
		s.Before()
	}
	return s, 100 * m.at
}

// further is what a step needs before its result is whole: the call wait, or itself again.
func (m *Model) further(s *Step, result string) (*Step, int) {
	if m.again >= maxAgain {
		return nil, 0
	}
	if more := goesOn.FindStringSubmatch(result); more != nil {
		m.again++
		wait := &Step{Tool: "wait", Input: object{}}
		_ = json.Unmarshal([]byte(strings.ReplaceAll(more[1], `\"`, `"`)), &wait.Input) // what it lacks, the tool says
		return wait, 100*m.at + m.again
	}
	if s.Until != "" && !strings.Contains(result, s.Until) {
		m.again++
		return s, 100*m.at + m.again
	}
	return nil, 0
}

// look passes on what came back for a step.
func (m *Model) look(s *Step, q *Question) {
	for i, made := range append([]Step{*s}, s.Beside...) {
		result := q.Results[CallID(m.asked+i)]
		if made.Got != nil {
			made.Got(result)
		}
		if made.Saw != nil {
			made.Saw(q, result)
		}
	}
	result := q.Results[CallID(m.asked)]
	for _, want := range append(slices.Clone(s.Want), s.Until) {
		if !strings.Contains(result, want) {
			m.failed("step %d, %s %v: the model was told %q, want %q in it", m.at, s.Tool, s.Input, result, want)
		}
	}
}

// isOffered reports whether a question offers a tool of toold's.
func (m *Model) isOffered(tool string, q *Question) bool {
	name := offeredName(m.script.Tool(tool))
	return slices.ContainsFunc(q.Offers, func(o Offer) bool { return o.Name == name })
}

// offeredName is the name of a tool in an Offer.
func offeredName(name, namespace string) string {
	if namespace != "" {
		return namespace + "/" + name
	}
	return name
}
