package tool

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// aSession has all facts.
func aSession() *SessionFacts {
	return &SessionFacts{
		Worktree: "/workspace", Git: "It is a git repository.", Writable: []string{"/workspace", "/tmp"},
		Network: "There is no network.", Limits: []string{"2 CPUs", "1GiB of memory", "512 processes"}, Shell: "/bin/bash",
		Programs: []string{"git", "make"}, Missing: []string{"cargo"},
	}
}

// Whatever tools one may use, descriptions name no other, and are whole texts.
func TestDescriptionsNameOnlyWhatMayBeUsed(t *testing.T) {
	r := NewRegistry()
	all := r.List()
	word := regexp.MustCompile("`([a-z_]+)`")
	for subset := range 1 << len(all) {
		names := []string{}
		for i, d := range all {
			if subset>>i&1 == 1 {
				names = append(names, d.Name)
			}
		}
		for _, s := range []*SessionFacts{nil, aSession(), {Worktree: "/w", ReadOnly: true, Network: "n.", Shell: "sh"}} {
			for _, d := range all {
				if !slices.Contains(names, d.Name) {
					continue
				}
				got, err := d.Describe(Facts{Tools: names, Session: s})
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range word.FindAllStringSubmatch(got.Description, -1) {
					if _, ok := r.Get(m[1]); ok && !slices.Contains(names, m[1]) {
						t.Fatalf("%s, to who may use %q, speaks of %s", d.Name, names, m[1])
					}
				}
				for _, bad := range []string{"{{", "}}", "<no value>", "\n\n\n", " \n", "  ", " .", " ,", "..", "``"} {
					if strings.Contains(got.Description, bad) {
						t.Fatalf("%s has %q in:\n%s", d.Name, bad, got.Description)
					}
				}
			}
		}
	}
}

func TestDescribe(t *testing.T) {
	r := NewRegistry()
	const unknown = "There may be no network"
	for _, tt := range []struct {
		name, tool string
		facts      Facts
		want, not  []string
	}{
		{"anywhere", "bash", Facts{}, []string{unknown, "more than two minutes", "(milliseconds)", "`write` to write one"}, []string{"In this session", "at most"}},
		{"timeouts", "bash", Facts{Timeout: 90 * time.Second, MaxTimeout: time.Hour}, []string{"more than 90 seconds", "(milliseconds, at most 3600000)"}, []string{"two minutes"}},
		{"a short maximum", "bash", Facts{Timeout: time.Minute, MaxTimeout: time.Second}, []string{"more than one second", "at most 1000)"}, nil},
		{"an odd time", "bash", Facts{Timeout: 1500 * time.Millisecond}, []string{"more than 1500 milliseconds"}, nil},
		{"explore", "read", Facts{Tools: []string{"read", "grep", "glob", "list"}}, []string{"`glob` to find files"}, []string{"edit", "before changing"}},
		{"session", "bash", Facts{Session: aSession()}, []string{
			"In this session:", "starts in the worktree, `/workspace`", "It is a git repository.", "`/workspace` and `/tmp` can be written, everything else is read-only",
			"There is no network", "2 CPUs, 1GiB of memory and 512 processes", "`/bin/bash`", "here, among others: git, make. Not here: cargo.",
		}, []string{unknown, "which is read-only"}},
		{"read-only", "bash", Facts{Session: &SessionFacts{Worktree: "/w", ReadOnly: true, Writable: []string{"/tmp"}, Layer: true}}, []string{
			"`/w`, which is read-only", "`/tmp` can be written; what is written elsewhere goes",
		}, []string{"limits are", "Not here"}},
		{"where to write", "write", Facts{Session: aSession()}, []string{"In this session the worktree is `/workspace`. `/workspace` and `/tmp` can be written"}, nil},
		{"where to look", "grep", Facts{Session: aSession()}, []string{"In this session the worktree is `/workspace`."}, nil},
	} {
		d, _ := r.Get(tt.tool)
		before := d.Description + string(d.Schema)
		got, err := d.Describe(tt.facts)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range tt.want {
			if !strings.Contains(got.Description, want) {
				t.Errorf("%s: %q is missing in:\n%s", tt.name, want, got.Description)
			}
		}
		for _, not := range tt.not {
			if strings.Contains(got.Description, not) {
				t.Errorf("%s: %q is in:\n%s", tt.name, not, got.Description)
			}
		}
		if d.Description+string(d.Schema) != before {
			t.Errorf("%s: the definition itself has changed", tt.name)
		}
	}
}

// The schema says the timeouts too, in every shape, and means what it meant.
func TestDescribedSchemas(t *testing.T) {
	d, _ := NewRegistry().Get("bash")
	got, err := d.Describe(Facts{Timeout: time.Minute, MaxTimeout: 2 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	const want = "The default is 60000 (one minute), the most 7200000."
	for format := range formats {
		raw, err := Render(got, format)
		if err != nil || !strings.Contains(string(raw), want) {
			t.Errorf("as %q: %s, %v", format, raw, err)
		}
	}
	if plain, err := Render(d, ""); err != nil || !strings.Contains(string(plain), "120000 (two minutes).") {
		t.Errorf("plain: %s, %v", plain, err)
	}
	if _, err := got.parse(json.RawMessage(`{"command":"x","timeout":1}`)); err != nil {
		t.Error(err)
	}
}

func TestBrief(t *testing.T) {
	for _, tt := range []struct {
		name      string
		facts     Facts
		want, not []string
	}{
		{"anywhere", Facts{}, []string{"after two minutes, unless its call asks for another time.\n"}, []string{"worktree", "The tools are", "<no value>"}},
		{"session", Facts{Tools: []string{"read", "grep"}, MaxTimeout: time.Hour, Session: aSession()}, []string{
			"- The worktree is `/workspace`; relative paths begin there. It is a git repository.\n", "There is no network", "at most 3600000 ms",
			"- The limits are 2 CPUs, 1GiB of memory and 512 processes.\n", "- The tools are `read` and `grep`.", "here, among others: git, make. Not here: cargo.\n",
		}, []string{"\n\n\n"}},
		{"read-only", Facts{Session: &SessionFacts{Worktree: "/w", ReadOnly: true}}, []string{"`/w`, which is read-only;", "- Nothing can be written.\n"}, []string{"limits"}},
	} {
		got, err := tt.facts.Brief()
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q is not in\n%s", tt.name, want, got)
			}
		}
		for _, not := range tt.not {
			if strings.Contains(got, not) {
				t.Errorf("%s: %q is in\n%s", tt.name, not, got)
			}
		}
	}
}
