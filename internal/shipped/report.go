package shipped

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
)

// seen is what came to the model.
type seen struct {
	mu       sync.Mutex // guards what follows
	last     *Question  // that offers tools
	before   Question   // that had the last result
	others   int        // questions that offer none
	received []Received

	how, said string // it ended, and what it said then
	names     []string
}

func (s *seen) question(q *Question) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(q.Offers) == 0 {
		s.others++
		return
	}
	s.last = q
}

func (s *seen) result(p *Probe, w written, result string, q *Question, home string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.received = append(s.received, p.Receive(w, result, q, &s.before, home))
	s.before = *q
}

// end is how the agent ended.
func (s *seen) end(how, said string, m *Model) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.how, s.said, s.names = how, strings.TrimSpace(said), m.Names()
}

// Report is what a trial has come to. toolctl prints it as JSON, whose names are stable.
type Report struct {
	Agent   string   `json:"agent"`
	Program string   `json:"program"`
	Tools   []string `json:"tools"`         // of toold's that the model was offered, as toold names them
	Missing []string `json:"missing_tools"` // of toold's that it was not
	Own     []string `json:"own_tools"`     // of the agent's own
	// Instructions are how many lines toold gave that no tool says as well, and how many of them the model had.
	Instructions struct {
		Lines   int `json:"lines"`
		Arrived int `json:"arrived"`
	} `json:"instructions"`
	Received []Received `json:"received"`
	// Said is the last that the agent said, where it ended before all calls were made.
	Said   string         `json:"said,omitempty"`
	Checks []client.Check `json:"checks"`
}

func (r *Report) check(name string, status client.CheckStatus, hint, detail string) {
	r.Checks = append(r.Checks, client.Check{Group: "agent", Name: name, Status: status, Detail: detail, Hint: hint})
}

// report says what was seen, and what to do about it.
func (t *Trial) report() *Report {
	r := &Report{Agent: t.Agent.Name, Program: t.Program, Tools: []string{}, Missing: []string{}, Own: []string{}, Received: t.seen.received}
	if r.Received == nil {
		r.Received = []Received{}
	}
	for _, tool := range t.want.tools {
		if slices.Contains(t.seen.names, t.Agent.Offered(tool)) {
			r.Tools = append(r.Tools, tool)
		} else {
			r.Missing = append(r.Missing, tool)
		}
	}
	for _, name := range t.seen.names {
		if t.Agent.Own(name) {
			r.Own = append(r.Own, name)
		}
	}
	t.checkTools(r)
	t.checkInstallation(r)
	t.checkInstructions(r)
	t.checkCalls(r)
	for i := range r.Received {
		t.checkReceived(r, &r.Received[i], Probes[i].Picture)
	}
	return r
}

func (t *Trial) checkTools(r *Report) {
	name, all := t.Agent.Name, len(t.want.tools)
	switch {
	case len(r.Tools) == 0:
		r.check("tools", client.CheckFail, fmt.Sprintf("%s has not started the server, or has not waited for it: update it (npm install -g %s)", name, t.Agent.Package),
			fmt.Sprintf("none of toold's %d", all))
	case len(r.Missing) > 0:
		r.check("tools", client.CheckFail, "its model cannot call these: see whether a setting of its own leaves them out",
			fmt.Sprintf("%d of toold's %d; not %s", len(r.Tools), all, strings.Join(r.Missing, ", ")))
	default:
		r.check("tools", client.CheckOK, "", fmt.Sprintf("all %d of toold's, such as %s", all, t.Agent.Offered(r.Tools[0])))
	}
	var more []string
	for _, own := range r.Own {
		if !slices.Contains(t.Agent.Keeps, own) {
			more = append(more, own)
		}
	}
	switch {
	case len(more) > 0:
		r.check("own tools", client.CheckFail, fmt.Sprintf("what it does with these it does on the host, outside any sandbox, though all were turned off that docs/agents.md knows of: turn them off in a setting of %s too", name),
			strings.Join(more, ", "))
	case len(r.Own) > 0:
		r.check("own tools", client.CheckOK, "", "those that cannot be turned off, and touch nothing of the host: "+strings.Join(r.Own, ", "))
	default:
		r.check("own tools", client.CheckOK, "", "none")
	}
}

// checkInstallation looks at the user's own configuration: what was tried is what install writes.
func (t *Trial) checkInstallation(r *Report) {
	lacks := t.Lacks()
	if len(lacks) == 0 {
		r.check("installed", client.CheckOK, "", "your own configuration has what was tried")
		return
	}
	r.check("installed", client.CheckWarn, fmt.Sprintf("what was tried here is what \"toolctl mcp --install %s\" writes", t.Agent.Name), "not in your own configuration: "+strings.Join(lacks, "; "))
}

func (t *Trial) checkInstructions(r *Report) {
	for text := range strings.Lines(t.want.instructions) {
		if text = strings.TrimSpace(text); text != "" && !strings.Contains(t.want.descriptions, text) {
			r.Instructions.Lines++
			if t.seen.last.Times(text) > 0 {
				r.Instructions.Arrived++
			}
		}
	}
	all, arrived := r.Instructions.Lines, r.Instructions.Arrived
	hint := fmt.Sprintf("tell its model by a file that %s reads: toolctl session brief SESSION >>AGENTS.md", t.Agent.Name)
	switch {
	case arrived == 0:
		r.check("instructions", client.CheckWarn, hint, "none of "+linesOf(all)+because(t.Agent.Uninstructed))
	case arrived < all:
		r.check("instructions", client.CheckWarn, hint, fmt.Sprintf("%d of %s", arrived, linesOf(all)))
	default:
		r.check("instructions", client.CheckOK, "", "all "+linesOf(all))
	}
}

func (t *Trial) checkCalls(r *Report) {
	made, all := len(r.Received), len(Probes)
	if made == all {
		r.check("calls", client.CheckOK, "", fmt.Sprintf("all %d made", all))
		return
	}
	detail := fmt.Sprintf("%d of %d made; then it %s", made, all, t.seen.how)
	hint := fmt.Sprintf("update %s (npm install -g %s)", t.Agent.Name, t.Agent.Package)
	if r.Said = t.seen.said; r.Said != "" {
		hint += "; the last that it said: " + plain.Line(r.Said[max(0, len(r.Said)-300):])
	}
	r.check("calls", client.CheckFail, hint, detail)
}

// checkReceived looks at what came of one call.
func (t *Trial) checkReceived(r *Report, got *Received, picture bool) {
	switch {
	case got.Escaped:
		r.check(got.What, client.CheckFail, "its model reads tabs, quotes and line breaks otherwise than they are in files, and edits fail by that: update "+t.Agent.Name,
			bytesOf(got.Wrote)+", as a string of JSON: what would be a tab is \\t")
	case got.Times == 0 && got.First+got.Last == 0:
		r.check(got.What, client.CheckFail, "its model reads something else than toold wrote: update "+t.Agent.Name, fmt.Sprintf("nothing of %s; the model has %s", bytesOf(got.Wrote), bytesOf(got.Arrived)))
	case got.Times == 0:
		r.check(got.What, client.CheckFail, "its model does not know what is left out, or is told to look elsewhere: raise the limit of "+t.Agent.Name+" on the results of tools",
			fmt.Sprintf("cut: of %s the first %d and the last %d", bytesOf(got.Wrote), got.First, got.Last))
	case picture && got.Pictures == 0 && t.Agent.Blind != "":
		r.check(got.What, client.CheckWarn, fmt.Sprintf("%s does so in each version that is known: do not have its model look at pictures", t.Agent.Name), "not shown to its model: "+t.Agent.Blind)
	case picture && got.Instead != "":
		r.check(got.What, client.CheckWarn, "small things in it may be lost: have its model look at the part that counts, cut out", "its model has "+got.Instead+" in place of it"+because(t.Agent.Redraws[got.What]))
	case picture && got.Pictures == 0:
		r.check(got.What, client.CheckFail, "see that its model is set to one that takes pictures, and update "+t.Agent.Name, "not shown to its model")
	case got.Times > 1 || got.Pictures > 1:
		r.check(got.What, client.CheckWarn, "each time costs its model the whole text: update "+t.Agent.Name, fmt.Sprintf("%s, %d times", bytesOf(got.Wrote), max(got.Times, got.Pictures)))
	default:
		detail := bytesOf(got.Wrote) + ", once and unchanged"
		if more := got.Arrived - got.Wrote; more > 0 {
			detail += fmt.Sprintf(", with %s of the agent's around it", bytesOf(more))
		}
		r.check(got.What, client.CheckOK, "", detail)
	}
}

func bytesOf(n int) string { return plain.Count(n, "byte", "bytes") }

func linesOf(n int) string { return plain.Count(n, "line", "lines") }

// because is a known reason as the end of a text; "" of none.
func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}
