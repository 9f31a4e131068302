package tool

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// given is a Source with these tools.
type given struct {
	name  string
	tools []*Definition
}

func (g given) Name() string         { return g.name }
func (g given) Tools() []*Definition { return g.tools }

func anyTool(*Definition) string { return "" }

func aTool(name string, s *jsonschema.Schema) *Definition {
	return &Definition{Name: name, decode: aListing, input: s}
}

func TestChoice(t *testing.T) {
	for _, tt := range []struct {
		names, has string
	}{
		{"", "bash read grep"},
		{"read grep", "read grep"},
		{"-bash", "read grep"},
		{"read grep -bash", "read grep"},
		{"-bash -*e*", ""},
		{"* -bash", "read grep"},
		{"-read read", "none"}, // what is left out is out, wherever it stands
		{"g*", "grep"},
	} {
		c, has := Choice{"profile x", strings.Fields(tt.names)}, []string{}
		for _, name := range []string{"bash", "read", "grep"} {
			why := c.Lacks(name)
			if why == "" {
				has = append(has, name)
			} else if !strings.HasPrefix(why, "profile x ") {
				t.Errorf("%s: %s", tt.names, why)
			}
		}
		if got := strings.Join(has, " "); got != strings.TrimPrefix(tt.has, "none") {
			t.Errorf("%q: has %q, want %q", tt.names, got, tt.has)
		}
	}
}

func TestCheckChoice(t *testing.T) {
	for names, want := range map[string]string{
		"read -bash mcp_*": "", "-bsh": `no tool "bsh"; did you mean bash?`, "file_put": "no tool", "Bash": "did you mean bash",
		strings.Repeat("read ", 201): "more than 200",
	} {
		err := CheckChoice(strings.Fields(names))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.20s: %v, want %q", names, err, want)
		}
	}
}

// A later source takes no name from an earlier one, and breaks nothing.
func TestSources(t *testing.T) {
	r := NewRegistry(
		given{"first", []*Definition{aTool("read", object()), aTool("own", object()), aTool("bad", object(required("p", &jsonschema.Schema{Type: "number", Pattern: "("})))}},
		given{"second", []*Definition{aTool("own", object())}},
	)
	set := r.Set(func(d *Definition) string {
		if d.Name == "write" {
			return "why not"
		}
		return ""
	})
	var absent []string
	for _, a := range set.Absent {
		absent = append(absent, a.Name+": "+a.Why)
	}
	want := []string{"read: that of first: the name is taken by built in", "own: that of second: the name is taken by first", "write: why not"}
	if len(absent) != 4 || !strings.HasPrefix(absent[1], "bad: that of first: ") || !slices.Equal(slices.Delete(slices.Clone(absent), 1, 2), want) {
		t.Errorf("absent: %q", absent)
	}
	if d, ok := r.Get("read"); !ok || d.Description == "" {
		t.Errorf("read is %+v", d)
	}
	if names := set.Names(); names[len(names)-1] != "own" || slices.Contains(names, "write") {
		t.Errorf("has %q", names)
	}
	if all := r.Set(anyTool); all.Revision == set.Revision || all.Revision != r.Set(anyTool).Revision {
		t.Errorf("revisions %s and %s", all.Revision, set.Revision)
	}
	defer func() {
		if recover() == nil {
			t.Error("a wrong definition of our own was taken")
		}
	}()
	newRegistry(given{"ours", []*Definition{aTool("bad", object(required("p", &jsonschema.Schema{Type: "number", Pattern: "("})))}})
}
