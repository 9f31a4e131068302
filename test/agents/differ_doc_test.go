package agents

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/internal/testrig"
)

var update = flag.Bool("update", false, "write the differences into docs/agents.md")

// TestDifferDocs: docs/agents.md says of the calls of TestDiffer what the tables say.
func TestDifferDocs(t *testing.T) {
	top, err := testrig.Top()
	testrig.Must(t, err)
	path := filepath.Join(top, "docs", "agents.md")
	doc, err := os.ReadFile(path)
	testrig.Must(t, err)
	const begin, end = "<!-- differences: go test ./test/agents -run TestDifferDocs -update -->\n", "<!-- end of differences -->\n"
	before, rest, ok := strings.Cut(string(doc), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("docs/agents.md has no %s%s", begin, end)
	}
	want := before + begin + differencesDoc(t, top) + end + after
	if *update {
		testrig.Must(t, os.WriteFile(path, []byte(want), 0o644))
	} else if want != string(doc) {
		t.Error("docs/agents.md does not have the differences as they are: run this test with -update")
	}
}

func differencesDoc(t *testing.T, top string) string {
	known, calls := readDifferences(t), readCalls(t)
	var pinned struct{ Dependencies map[string]string }
	b, err := os.ReadFile(filepath.Join(top, "tools", "agents", "package.json"))
	testrig.Must(t, err)
	testrig.Must(t, json.Unmarshal(b, &pinned))
	differ := make(map[string]bool) // calls
	for line := range known {
		id, _, _ := strings.Cut(line, " ")
		differ[id] = true
	}
	var out strings.Builder
	fmt.Fprintf(&out, "\nOf %d calls, made of the tools of OpenCode %s and of toold's in equal trees, %d come to the\nsame and %d do not:\n\n",
		len(calls), pinned.Dependencies["opencode-ai"], len(calls)-len(differ), len(differ))
	for _, r := range known.reasons() {
		fmt.Fprintf(&out, "- %s (%s)\n", r, strings.Join(known.calls(r), ", "))
	}
	return out.String() + "\n"
}

// lines are those of testdata/differences.txt, each with its reason.
type lines map[string]string

func (l lines) reasons() (all []string) {
	for _, why := range l {
		if !slices.Contains(all, why) {
			all = append(all, why)
		}
	}
	slices.Sort(all)
	return all
}

// calls are the ids of the calls that differ for this reason.
func (l lines) calls(reason string) (ids []string) {
	for line, why := range l {
		id, _, _ := strings.Cut(line, " ")
		if id = "`" + id + "`"; why == reason && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
