package policy

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/tool"
)

// facts is one file of testdata: rules, and how they judge calls. The documents
// quote them.
type facts struct {
	set      *Set
	ceilings []Ceiling
	saved    []Rule
	sections map[string]string
}

func readFacts(t *testing.T, file string) *facts {
	t.Helper()
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f := &facts{sections: make(map[string]string)}
	for _, s := range a.Files {
		f.sections[s.Name] = string(s.Data)
	}
	if f.set, err = Parse("rules.toml", []byte(f.sections["rules.toml"])); err != nil {
		t.Fatal(err)
	}
	var session []client.RuleOf
	for _, c := range columns(f.sections["session"]) {
		session = append(session, client.RuleOf{Permission: c[0], Pattern: c[1], Action: c[2]})
	}
	rules, err := CheckRules("session", session)
	if err != nil {
		t.Fatal(err)
	}
	worktree, err := ParseCeiling("worktree.toml", []byte(f.sections["worktree.toml"]))
	if err != nil {
		t.Fatal(err)
	}
	f.ceilings = []Ceiling{{"session", rules}, {"worktree", worktree}}
	for i, c := range columns(f.sections["saved"]) {
		f.saved = append(f.saved, Rule{Permission: c[0], Pattern: c[1], Source: fmt.Sprintf("saved %d", i+1)})
	}
	return f
}

// columns splits lines at their bars.
func columns(text string) [][]string {
	var all [][]string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		var row []string
		for c := range strings.SplitSeq(line, " | ") {
			row = append(row, strings.TrimSpace(c))
		}
		all = append(all, row)
	}
	return all
}

// stack is that of a line "as profile=X tenant=Y".
func (f *facts) stack(t *testing.T, as string) *Stack {
	t.Helper()
	profile, tenant := "", "default"
	for field := range strings.FieldsSeq(strings.TrimPrefix(as, "as")) {
		switch k, v, _ := strings.Cut(field, "="); k {
		case "profile":
			profile = v
		case "tenant":
			tenant = v
		}
	}
	s, err := f.set.Stack(profile, tenant)
	if err != nil {
		t.Fatal(err)
	}
	return s.With(f.ceilings...).Remember(f.saved)
}

// onPaths are the permissions whose texts in the tables are paths.
var onPaths = []string{"read", "edit", "list", PermissionExternal}

// requestOf makes a request of a line's permission and text: on a path where the
// permission is about paths, on a whole text where it begins with "opaque", on a
// file that is only known at run time where it begins with "unknown".
func requestOf(permission, text string) Request {
	text = strings.ReplaceAll(text, `\n`, "\n")
	if input, ok := OutgoingInput(permission, text); ok {
		all, _, err := Outgoing(permission, input)
		if err != nil {
			panic(err)
		}
		return all[0]
	}
	if name, opaque := strings.CutPrefix(permission, "opaque "); opaque {
		return Request{Permission: name, Pattern: text, Opaque: true}
	}
	if name, unknown := strings.CutPrefix(permission, "unknown "); unknown {
		return lexical(Workspace, "").Requests(tool.Access{Requests: []tool.Request{{Permission: name, Pattern: text, Write: true}}})[0]
	}
	path := text
	if !slices.Contains(onPaths, permission) && (permission != "grep" || !strings.Contains(text, "/")) {
		path = ""
	}
	return lexical(Workspace, "").Requests(tool.Access{Requests: []tool.Request{{Permission: permission, Pattern: text, Path: path, Search: permission == "grep" || permission == "glob"}}})[0]
}

// requestsOf are the requests of a line: those of a whole command where the permission is
// "bash in DIR".
func requestsOf(t *testing.T, permission, text string) []Request {
	t.Helper()
	if dir, is := strings.CutPrefix(permission, "bash in "); is {
		return ofCommand(t, text, dir)
	}
	return []Request{requestOf(permission, text)}
}

func TestFacts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			f := readFacts(t, file)
			s, n := f.stack(t, ""), 0
			for _, c := range columns(f.sections["calls"]) {
				if strings.HasPrefix(c[0], "as ") {
					s = f.stack(t, c[0])
					continue
				}
				n++
				v := s.Judge(requestsOf(t, c[2], c[3]))
				if string(v.Action) != c[0] || v.Rule != c[1] {
					t.Errorf("%s %q is %s by %s (%s), want %s by %s", c[2], c[3], v.Action, v.Rule, v.Pattern, c[0], c[1])
				}
			}
			if n == 0 {
				t.Error("nothing was judged")
			}
			for line := range strings.Lines(f.sections["hidden"]) {
				profile, want, _ := strings.Cut(strings.TrimSpace(line), ":")
				var got []string
				for _, p := range permissions {
					if slices.Contains(outgoing, p) {
						continue // no tool has them
					}
					if f.stack(t, "as profile="+profile).Hidden(p) {
						got = append(got, p)
					}
				}
				slices.Sort(got)
				if w := slices.Sorted(strings.FieldsSeq(want)); !slices.Equal(got, w) {
					t.Errorf("%s hides %v, want %v", profile, got, w)
				}
			}
		})
	}
}
