package agents

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// receipt is what a model receives of one call.
type receipt struct {
	what    string
	tool    string
	input   in
	picture bool
}

var receipts = []receipt{
	{what: "text", tool: "read", input: in{"file_path": "a.txt"}},
	{what: "picture", tool: "read", input: in{"file_path": "p.png"}, picture: true},
	{what: "300 lines", tool: "bash", input: in{"command": "seq 300"}},
	{what: "error", tool: "edit", input: in{"file_path": "a.txt", "old_string": "one\ttwo \"four\"", "new_string": "x"}},
}

// received is a line of the table: how much toold wrote, how often the model has that, and what the
// agent put around it.
type received struct {
	wrote, arrived, times int
	around                string
	pictures              int
}

// TestReceive: what toold writes arrives at the model of each agent once, and unchanged. What an agent
// adds, or does not send, is its own and stands in shippedAgents. The table is in the log.
func TestReceive(t *testing.T) {
	d := startDaemon(t)
	var mu sync.Mutex // guards table
	table := make(map[string]received)
	t.Run("all", func(t *testing.T) {
		for _, a := range shippedAgents {
			t.Run(a.name, func(t *testing.T) {
				t.Parallel()
				for i, r := range d.receives(t, a) {
					mu.Lock()
					table[a.name+" "+receipts[i].what] = r
					mu.Unlock()
					r.check(t, a, receipts[i])
				}
			})
		}
	})
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "agent\tof\ttoold wrote\tthe model has\ttimes\tpictures\taround it")
	for _, a := range shippedAgents {
		for _, of := range receipts {
			r := table[a.name+" "+of.what]
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%.120q\n", a.name, of.what, r.wrote, r.arrived, r.times, r.pictures, r.around)
		}
	}
	_ = w.Flush() // into a text
	t.Log("\n" + b.String())
}

// receives runs the agent, and gives what its model received of each of receipts.
func (d *daemon) receives(t *testing.T, a *shippedAgent) []received {
	png, err := base64.StdEncoding.DecodeString(pixel)
	testrig.Must(t, err)
	dir := worktree(t, map[string]string{"a.txt": "one\ttwo \"three\"\n\\four\\ <five> &amp; ü\n", "p.png": string(png)})
	var steps []step
	got := make([]string, len(receipts))
	asked := make([]*question, len(receipts))
	for i, r := range receipts {
		steps = append(steps, step{tool: r.tool, input: r.input, saw: func(q *question, result string) { got[i], asked[i] = result, q }})
	}
	m := newModel(t, a.tool, steps)
	cmd := a.command(t, m.URL, "--socket", d.socket, "--worktree", dir, "--name", a.name)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", cmd, err, out)
	}
	m.finished()
	list, err := d.client.ListCalls(t.Context(), a.name, client.CallQuery{})
	testrig.Must(t, err)
	if t.Failed() || len(list.Items) != len(receipts) {
		t.Fatalf("%d calls, want %d", len(list.Items), len(receipts))
	}
	for name := range m.tools {
		if n, ns := a.tool(""); !strings.HasPrefix(name, n) && !slices.Contains(a.keeps, name) || ns != "" && !strings.HasPrefix(name, ns) && !slices.Contains(a.keeps, name) {
			t.Errorf("the agent has another hand: %s", name)
		}
	}
	var all []received
	for i := range receipts {
		wrote := list.Items[i].Output
		all = append(all, received{
			wrote: len(wrote), arrived: len(got[i]), times: asked[i].times(wrote),
			around: strings.ReplaceAll(strings.Replace(got[i], wrote, "…", 1), cmd.Dir, "{home}"), pictures: asked[i].times(pixel),
		})
	}
	return all
}

func (r received) check(t *testing.T, a *shippedAgent, of receipt) {
	adds, ok := a.adds[of.what]
	if !ok {
		adds = a.adds[""]
	}
	if adds == "" {
		adds = "…"
	}
	if r.times != 1 || !regexp.MustCompile("^(?s:"+adds+")$").MatchString(r.around) {
		t.Errorf("%s: the text of %d bytes arrives %d times, as %q, want %q", of.what, r.wrote, r.times, r.around, adds)
	}
	if seen := r.pictures == 1; of.picture && seen == (a.blind != "") {
		t.Errorf("the picture arrives %d times, and known is that %q", r.pictures, a.blind)
	}
}
