package tool

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

const (
	referenceFile  = "../../docs/tools.md"
	referenceBegin = "<!-- generated: go test ./internal/tool -run TestReference -update -->\n"
	referenceEnd   = "<!-- end -->\n"
)

// TestReference: what the page of the tools says in its marked parts is what the definitions
// say. With -update it writes them; a section without marks gets them below its heading.
func TestReference(t *testing.T) {
	page, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	want := page
	for _, d := range NewRegistry().List() {
		if want, err = referred(want, d.Name, reference(t, d)); err != nil {
			t.Fatal(err)
		}
	}
	if got, tools := bytes.Count(want, []byte(referenceBegin)), len(NewRegistry().List()); got != tools {
		t.Errorf("%s has %d marked parts, but there are %d tools: take out those of no tool", referenceFile, got, tools)
	}
	if *update {
		if err := os.WriteFile(referenceFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(page, want) {
		t.Errorf("%s is out of date: go test ./internal/tool -run TestReference -update", referenceFile)
	}
}

// referred is page with text as the marked part of the section called name.
func referred(page []byte, name, text string) ([]byte, error) {
	heading := "\n## " + name + "\n\n"
	before, rest, ok := strings.Cut(string(page), heading)
	if !ok {
		return nil, fmt.Errorf("%s has no section %s", referenceFile, name)
	}
	if old, ok := strings.CutPrefix(rest, referenceBegin); !ok {
		rest = "\n" + rest
	} else if _, rest, ok = strings.Cut(old, referenceEnd); !ok {
		return nil, fmt.Errorf("%s: the marked part of %s does not end", referenceFile, name)
	}
	return []byte(before + heading + referenceBegin + text + referenceEnd + rest), nil
}

// example is a call that shows what a tool is for: NAME.example.json. The files are in the
// worktree before it, the skills below a directory of skills; the answer is the whole of its
// output.
type example struct {
	Files  map[string]string `json:"files"`
	Skills map[string]string `json:"skills"`
	Input  json.RawMessage   `json:"input"`
	Answer string            `json:"answer"`
}

// reference is all that the page takes from a definition.
func reference(t *testing.T, d *Definition) string {
	t.Helper()
	var b strings.Builder
	if rows := fieldRows(t, d, d.input, "", ""); len(rows) > 0 {
		b.WriteString("| field | type | limits | default | meaning | also taken |\n|---|---|---|---|---|---|\n" + strings.Join(rows, "") + "\n")
	} else {
		b.WriteString("No fields.\n\n")
	}
	e, asks := readExample(t, d)
	for _, item := range [][2]string{
		{"Permission", coded(asks)},
		{"Traits", traitWords(d)},
		{"Output", outputWords(d)},
		{"Other names", nameWords(d)},
		{"Other inputs", inputWords(d)},
	} {
		if item[1] != "" {
			fmt.Fprintf(&b, "- %s: %s.\n", item[0], item[1])
		}
	}
	var input bytes.Buffer
	if err := json.Indent(&input, e.Input, "", "  "); err != nil {
		t.Fatal(err)
	}
	where := ""
	if len(e.Files) > 0 {
		where = ", where the worktree has " + coded(slices.Sorted(maps.Keys(e.Files)))
	}
	if len(e.Skills) > 0 {
		where = ", where the directory of skills has " + coded(slices.Sorted(maps.Keys(e.Skills)))
	}
	fmt.Fprintf(&b, "\nAn example%s, and its answer:\n\n<!-- internal/session/real_example_test.go: %s -->\n```json\n%s\n```\n\n```text\n%s\n```\n",
		where, d.Name, &input, strings.TrimRight(e.Answer, "\n"))
	return b.String()
}

// readExample gives the example of d, and the permissions that its calls ask for.
func readExample(t *testing.T, d *Definition) (e example, asks []string) {
	t.Helper()
	raw, err := os.ReadFile(d.Name + ".example.json")
	if err == nil {
		err = json.Unmarshal(raw, &e)
	}
	if err != nil {
		t.Fatalf("the example of %s: %v", d.Name, err)
	}
	inv, err := d.parse(e.Input)
	if err != nil || len(inv.Aliases) > 0 || inv.Lenient > 0 {
		t.Fatalf("the example of %s is not in the tool's own words: %+v, %v", d.Name, inv, err)
	}
	asks = d.Permissions()
	for _, r := range inv.Input.Access(nil).Requests {
		if !slices.Contains(asks, r.Permission) {
			asks = append(asks, r.Permission)
		}
	}
	return e, asks
}

// fieldRows are the rows of a table for the fields of s, each called at and its name; those of
// items of the list called list come after it.
func fieldRows(t *testing.T, d *Definition, s *jsonschema.Schema, at, list string) (rows []string) {
	t.Helper()
	for _, name := range s.PropertyOrder {
		f, shown := s.Properties[name], "`"+at+name+"`"
		if slices.Contains(s.Required, name) {
			shown += ", required"
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s | %s | %s |\n", shown, typeWords(f), limitWords(f), defaultWords(t, f),
			strings.ReplaceAll(f.Description, "|", `\|`), coded(otherNames(d, name, list))))
		if f.Items != nil {
			rows = append(rows, fieldRows(t, d, f.Items, at+name+"[].", name+"/")...)
		}
	}
	return rows
}

func typeWords(s *jsonschema.Schema) string {
	if s.Items != nil {
		return "list of " + typeWords(s.Items) + "s"
	}
	return strings.Join(types(s), " or ")
}

func limitWords(s *jsonschema.Schema) string {
	switch {
	case len(s.Enum) > 0:
		var all []string
		for _, v := range s.Enum {
			all = append(all, fmt.Sprint(v))
		}
		return coded(all)
	case s.Minimum != nil && (s.Maximum == nil || *s.Maximum == maxCount):
		return between(fmt.Sprintf("%.0f", *s.Minimum), "", "")
	case s.Minimum != nil:
		return between(fmt.Sprintf("%.0f", *s.Minimum), fmt.Sprintf("%.0f", *s.Maximum), "")
	case s.Items != nil:
		return between(counted(s.MinItems), counted(s.MaxItems), " items")
	}
	return between(counted(s.MinLength), counted(s.MaxLength), " characters")
}

// defaultSaid is how a description says what a field that is not given means.
var defaultSaid = regexp.MustCompile(`The default is ([^.:]+)`)

// defaultWords is what a field that is not given means: models read it, so its description is
// where it stands.
func defaultWords(t *testing.T, s *jsonschema.Schema) string {
	t.Helper()
	m := defaultSaid.FindStringSubmatch(s.Description)
	switch {
	case m != nil:
		return m[1]
	case strings.Contains(s.Description, "default"):
		t.Errorf("%q says its default otherwise than as \"The default is …\"", s.Description)
	}
	return ""
}

func counted(n *int) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}

func between(low, high, unit string) string {
	switch {
	case low == "" && high == "":
		return ""
	case low == "1" && high == "" && unit != "":
		return "not empty"
	case high == "":
		return "at least " + low + unit
	case low == "":
		return "at most " + high + unit
	}
	return low + " to " + high + unit
}

// otherNames are those of a field, and of its values.
func otherNames(d *Definition, name, list string) (all []string) {
	for _, also := range slices.Sorted(maps.Keys(d.also.fields)) {
		if rest, ok := strings.CutPrefix(also, list); ok && !strings.Contains(rest, "/") && d.also.fields[also] == name {
			all = append(all, rest)
		}
	}
	if list == "" {
		all = slices.AppendSeq(all, maps.Keys(d.also.values[name]))
	}
	return all
}

func traitWords(d *Definition) string {
	words := []string{cmp.Or(map[By]string{ByDaemon: "run by the daemon"}[d.By], "run in the sandbox")}
	for _, w := range []struct {
		holds bool
		word  string
	}{
		{d.ReadOnly, "read-only"},
		{d.Destructive, "destructive"},
		{d.Idempotent, "idempotent"},
		{d.OpenWorld, "reaches as far as the session's network"},
		{d.Polling, "may look for news again and again"},
		{d.NoSlot, "takes no slot"},
		{d.OwnDeadline, "not ended by `limits.wall`"},
		{d.Command, "runs programs"},
	} {
		if w.holds {
			words = append(words, w.word)
		}
	}
	return strings.Join(words, ", ")
}

func outputWords(d *Definition) string {
	words := []string{map[string]string{truncateHead: "of a long one the beginning is shown", truncateBoth: "of a long one both ends are shown"}[d.Truncate]}
	if d.Paged {
		words[0] = "pages that it cuts itself"
	}
	if d.Streams {
		words = append(words, "arrives while it runs")
	}
	if s := map[Shown]string{ShowsNames: "names", ShowsContent: "contents"}[d.Shows]; s != "" {
		words = append(words, s+" of files that `read` denies are left out")
	}
	return strings.Join(words, ", ")
}

// nameWords are the other names of a tool, some of which a value decides.
func nameWords(d *Definition) string {
	var all []string
	for _, name := range d.also.tools {
		name, when, ok := strings.Cut(name, " ")
		if name = "`" + name + "`"; ok {
			name += " with `" + when + "`"
		}
		all = append(all, name)
	}
	return strings.Join(all, ", ")
}

// inputWords are the parts of inputs of other systems that are no other name of a field.
func inputWords(d *Definition) string {
	var all, none []string
	if d.also.text != "" {
		all = append(all, "the text of `"+d.also.text+"` alone")
	}
	rewrites := slices.DeleteFunc(slices.Clone(d.also.rewrites), func(name string) bool { return name == wordsAlias })
	if len(rewrites) < len(d.also.rewrites) {
		all = append(all, "a command may be a list of words")
	}
	if len(rewrites) > 0 {
		all = append(all, "understood: "+coded(rewrites))
	}
	for _, name := range slices.Sorted(maps.Keys(d.also.fields)) {
		if d.also.fields[name] == "" {
			none = append(none, strings.ReplaceAll(name, "/", "[]."))
		}
	}
	if len(none) > 0 {
		all = append(all, "without a meaning here, and left out: "+coded(none))
	}
	return strings.Join(all, "; ")
}

func coded(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "`" + strings.Join(names, "`, `") + "`"
}
