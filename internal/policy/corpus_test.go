package policy

import (
	"encoding/json"
	"testing"

	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool"
)

// asked is how many of the 300 commands the built-in rules ask about.
const asked = 0

// TestCorpus says how many commands as agents write them the built-in rules ask about.
func TestCorpus(t *testing.T) {
	t.Parallel()
	stack, err := Default().Stack(DefaultProfile, "default")
	if err != nil {
		t.Fatal(err)
	}
	tools, commands, n := tool.NewRegistry(), testrig.Corpus(t, "testdata/corpus"), 0
	for _, c := range commands {
		input, err := json.Marshal(map[string]string{"command": c.Text})
		if err != nil {
			t.Fatal(err)
		}
		inv, err := tools.Parse("bash", input)
		if err != nil {
			t.Fatal(err)
		}
		if v := stack.Judge(AsWritten(inv, nil, NoSession)); v.Action != Allow {
			n++
			t.Logf("%s: %s %q: %s\n%s", v.Action, v.Request.Permission, v.Request.Pattern, v.Request.Why, c.Text)
		}
	}
	if len(commands) != 300 || n != asked {
		t.Errorf("of %d commands %d are asked about, not %d", len(commands), n, asked)
	}
}
