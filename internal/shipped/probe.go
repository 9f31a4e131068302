package shipped

import (
	"encoding/json"
	"regexp"
	"strings"
)

// Probe is a call of a tool of toold's of which one looks at what a model receives.
type Probe struct {
	Name    string
	Tool    string
	Input   map[string]any
	Picture bool // is in the result
}

// Text is what the first of the probes prints.
const Text = "one\ttwo \"three\"\n\\four\\ <five> &amp; ü\n"

// Probes are made one after the other, in a session of their own: the first makes the pictures that the
// last ones read.
var Probes = []Probe{
	{Name: "text", Tool: "bash", Input: object{"command": draw("p.png", Pixel) + draw("large.png", largePNG) + drawJPEG("large.jpg") + `printf 'one\ttwo "three"\n\\four\\ <five> &amp; ü\n'`}},
	{Name: "other names", Tool: "bash", Input: object{"cmd": "echo as other systems name it"}},
	{Name: "300 lines", Tool: "bash", Input: object{"command": "seq 300"}},
	{Name: "44,000 bytes", Tool: "bash", Input: object{"command": `seq -f "%03.0f $(printf %0105d)" 400`}},
	{Name: "error", Tool: "read", Input: object{"file_path": "no\tsuch \"file\".txt"}},
	{Name: "failed command", Tool: "bash", Input: object{"command": `printf 'FAIL\tx_test.go:3\t"got" <nil>\n'; printf 'make: *** [all] Error 3\n' >&2; exit 3`}},
	{Name: "refused input", Tool: "read", Input: object{"file_path": "p.png", "from\t\"line\"": "\t2"}},
	// A rule of the session's may deny it: that is how denials are looked at.
	{Name: "rule", Tool: "bash", Input: object{"command": "echo a command that rules may deny"}},
	{Name: "picture", Tool: "read", Input: object{"file_path": "p.png"}, Picture: true},
	{Name: "large PNG", Tool: "read", Input: object{"file_path": "large.png"}, Picture: true},
	{Name: "large JPEG", Tool: "read", Input: object{"file_path": "large.jpg"}, Picture: true},
}

// Received is what a model has of a probe.
type Received struct {
	What    string `json:"what"`
	Failed  bool   `json:"failed,omitempty"` // the result is an error
	Wrote   int    `json:"wrote"`            // bytes of the text, by toold
	Arrived int    `json:"arrived"`          // bytes of the result, with what the agent adds
	Times   int    `json:"times"`            // how often the text is in the question, as it was written
	// First and Last are how many bytes of the beginning and of the end are there, where the whole
	// is not.
	First int `json:"first,omitempty"`
	Last  int `json:"last,omitempty"`
	// Escaped: the whole is there, as a string of JSON.
	Escaped bool `json:"escaped,omitempty"`
	// Around is the result with "…" in place of the text.
	Around string `json:"around,omitempty"`
	// Pictures is how often the picture is in the question, and Instead what is there where it is not.
	Pictures int    `json:"pictures,omitempty"`
	Instead  string `json:"instead,omitempty"`
}

// written is what toold wrote: a text, and a picture in base64 or "".
type written struct {
	text, picture string
	failed        bool // as an error
}

// Receive compares what toold wrote with the result that the model was given in a question of the
// agent's, whose home is named "{home}" there. before is the one with the result before it.
func (p *Probe) Receive(w written, result string, q, before *Question, home string) Received {
	wrote := ofCall(w.text, result)
	r := Received{What: p.Name, Failed: w.failed, Wrote: len(wrote), Arrived: len(result), Times: q.Times(wrote)}
	if r.Times == 0 {
		r.First, r.Last = ends(wrote, result)
		r.Escaped = strings.Contains(result, escaped(wrote))
	} else {
		r.Around = strings.ReplaceAll(strings.Replace(result, wrote, "…", 1), home, "{home}")
	}
	if p.Picture {
		r.Pictures = q.Times(w.picture)
		if r.Pictures == 0 {
			for _, picture := range q.Pictures() {
				if before.Times(picture) == 0 {
					r.Instead = described(picture)
				}
			}
		}
	}
	return r
}

// callID is the id of a call, by which a text that is cut names the file with the whole.
var callID = regexp.MustCompile(`call_\w+`)

// ofCall is what toold wrote for a call of its own as it writes it for the call of the result.
func ofCall(wrote, result string) string {
	if id := callID.FindString(result); id != "" {
		return callID.ReplaceAllString(wrote, id)
	}
	return wrote
}

// escaped is a text as it stands between the quotes of a string of JSON.
func escaped(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a string can be encoded
	return strings.TrimSuffix(strings.TrimSpace(b.String()), `"`)[1:]
}

// ends are how many bytes of the beginning and of the end of a text stand in another one, each
// where all of it that is left out comes after or before.
func ends(text, in string) (first, last int) {
	first = longest(len(text), func(n int) bool { return strings.Contains(in, text[:n]) })
	last = longest(len(text)-first, func(n int) bool { return strings.Contains(in, text[len(text)-n:]) })
	return first, last
}

// longest is the greatest number up to most for which something holds that holds for all smaller ones.
func longest(most int, holds func(int) bool) int {
	low, high := 0, most
	for low < high {
		if mid := (low + high + 1) / 2; holds(mid) {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// Known reports whether the agent is known to put just this around the text of a probe.
func (a *Agent) Known(p *Probe, r *Received) bool {
	kind := ""
	switch {
	case p.Picture:
		kind = "picture"
	case r.Failed:
		kind = "error"
	}
	adds, ok := a.Adds[kind]
	if !ok {
		adds = a.Adds[""]
	}
	if adds == "" {
		adds = "…"
	}
	return regexp.MustCompile("^(?s:" + adds + ")$").MatchString(r.Around)
}
