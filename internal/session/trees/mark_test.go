package trees

import (
	"testing"

	"github.com/toold/toold/client"
)

type sensitiveSessions struct{ Sessions }

func (sensitiveSessions) Sensitive() []string {
	return []string{"ops/", "/deploy", "*.hcl", "!kept.hcl"}
}

// TestMarkSensitive: a list of changes marks what the configuration of the host names, and what is
// in directories that it names, as an apply leaves them out.
func TestMarkSensitive(t *testing.T) {
	t.Parallel()
	s := &shared{sessions: sensitiveSessions{}}
	items := []client.Change{
		{Path: "a/ops/deep/x", Kind: "file"},
		{Path: "ops", OldKind: "dir"},
		{Path: "\ufffd.hcl", Bytes: []byte("\xff.hcl"), Kind: "file"},
		{Path: "deploy", Kind: "link"},
		{Path: ".envrc", Kind: "file", Sensitive: true},
		{Path: "ops", Kind: "file"},
		{Path: "a/deploy", Kind: "file"},
		{Path: "kept.hcl", Kind: "file"},
	}
	if err := s.markSensitive(items); err != nil {
		t.Fatal(err)
	}
	for i, c := range items {
		if want := i < 5; c.Sensitive != want {
			t.Errorf("%+v: want %v", c, want)
		}
	}
}
