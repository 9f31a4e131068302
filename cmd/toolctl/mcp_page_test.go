package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/toold/toold/internal/shipped"
)

var updatePage = flag.Bool("update", false, "write what install writes into docs/agents.md")

// settingsText is what install writes for an agent beside the server, as the page shows it; "" for nothing.
func settingsText(t *testing.T, a *shipped.Agent) string {
	t.Helper()
	var blocks []string
	for _, f := range filesOf(a.Name, nil) {
		all := f.sets
		f.sets = nil
		for _, s := range all {
			if _, own := s.Value.(server); !own {
				f.sets = append(f.sets, s)
			}
		}
		if len(f.sets) == 0 {
			continue
		}
		if f.toml {
			text, _, err := f.with(nil)
			if err != nil {
				t.Fatal(err)
			}
			blocks = append(blocks, "<!-- not run: TestAgentsPage compares it with what install writes -->\n```toml\n"+string(text)+"```\n")
			continue
		}
		config := map[string]any{}
		for _, s := range f.sets {
			v, err := f.jsonValue(s.Value)
			if _, _, merr := merge(config, s, v); err != nil || merr != nil {
				t.Fatal(err, merr)
			}
		}
		b, err := json.Marshal(config)
		v := jsontext.Value(b)
		if err != nil || v.Format(jsontext.SpaceAfterColon(true), jsontext.SpaceAfterComma(true)) != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, "```json\n"+string(v)+"\n```\n")
	}
	return strings.Join(blocks, "\n")
}

// TestAgentsPage: docs/agents.md shows what install writes, and how each agent is started. -update writes it.
func TestAgentsPage(t *testing.T) {
	const file = "../../docs/agents.md"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	for _, a := range shipped.Agents {
		if start := strings.Join(append([]string{a.Name}, a.Flags...), " ") + "\n"; !strings.Contains(page, "```sh\n"+start) {
			t.Errorf("the page does not start %s so: %s", a.Name, start)
		}
		want := settingsText(t, a)
		if want == "" {
			continue
		}
		head, end := fmt.Sprintf("<!-- settings of %s: go test ./cmd/toolctl -run TestAgentsPage -update -->\n", a.Name), "<!-- end of settings -->\n"
		before, rest, ok := strings.Cut(page, head)
		had, after, also := strings.Cut(rest, end)
		if !ok || !also {
			t.Errorf("the page has no %s", head)
			continue
		}
		if had != want && !*updatePage {
			t.Errorf("the page has %s\nwant %s", had, want)
		}
		page = before + head + want + end + after
	}
	if *updatePage {
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
