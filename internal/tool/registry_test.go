package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/toold/toold/client"
)

func TestParse(t *testing.T) {
	r := NewRegistry()
	for _, tc := range []struct {
		name, tool, in, want string
		lenient              int
	}{
		{"plain", "bash", `{"command":"ls"}`, `{"command":"ls"}`, 0},
		{"sorted", "bash", ` { "timeout" : 5 , "command" : "ls" } `, `{"command":"ls","timeout":5}`, 0},
		{"alias", "read", `{"filePath":"a"}`, `{"file_path":"a"}`, 0},
		{
			"aliases", "edit", `{"filePath":"a","oldString":"x","newString":"y","replaceAll":true}`,
			`{"file_path":"a","new_string":"y","old_string":"x","replace_all":true}`, 0,
		},
		{"number as string", "read", `{"file_path":"a","limit":"20"}`, `{"file_path":"a","limit":20}`, 1},
		{
			"boolean as string", "edit", `{"file_path":"a","old_string":"1","new_string":"true","replace_all":"true"}`,
			`{"file_path":"a","new_string":"true","old_string":"1","replace_all":true}`, 1,
		},
		{"array as string", "list", `{"ignore":"[\"a\",\"b\"]"}`, `{"ignore":["a","b"]}`, 1},
		{"input as string", "bash", `"{\"command\":\"ls\",\"timeout\":\"7\"}"`, `{"command":"ls","timeout":7}`, 2},
		{"null is absent", "grep", `{"pattern":"x","path":null,"limit":null}`, `{"pattern":"x"}`, 0},
		{"null under an alias", "grep", `{"pattern":"x","ignoreCase":null}`, `{"pattern":"x"}`, 0},
		{"whole floats", "read", `{"file_path":"a","offset":1e2,"limit":3.0}`, `{"file_path":"a","limit":3,"offset":100}`, 0},
		{"escapes", "bash", `{"command":"\u00e4\ud83d\ude00\/\n"}`, `{"command":"ä😀/\n"}`, 0},
		{"name in another case", "Bash", `{"command":"ls"}`, `{"command":"ls"}`, 0},
		{"no input", "list", ``, `{}`, 0},
		{"hidden", "file_put", `{"from":"/o/x","path":"a","mode":420}`, `{"from":"/o/x","mode":420,"path":"a"}`, 0},
		{"0 is absent", "read", `{"file_path":"a","offset":0,"limit":-0.0}`, `{"file_path":"a"}`, 2},
		{"0 as a string is absent", "bash", `{"command":"ls","timeout":"0"}`, `{"command":"ls"}`, 2},
		{"0 that means something stays", "grep", `{"pattern":"x","context":0,"limit":0}`, `{"context":0,"pattern":"x"}`, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := r.ParseHidden(tc.tool, json.RawMessage(tc.in))
			if err != nil {
				t.Fatal(err)
			}
			if string(got.JSON) != tc.want || got.Lenient != tc.lenient {
				t.Errorf("got %s lenient %d\nwant %s lenient %d", got.JSON, got.Lenient, tc.want, tc.lenient)
			}
			again, err := r.ParseHidden(tc.tool, got.JSON)
			if err != nil || string(again.JSON) != tc.want || again.Lenient != 0 {
				t.Errorf("parsed again: %v, %v", again, err)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	r := NewRegistry()
	deep := strings.Repeat("[", 70) + strings.Repeat("]", 70)
	for _, tc := range []struct {
		name, tool, in string
		want           []client.Violation // Message is a part of the whole
	}{
		{"duplicate key", "bash", `{"command":"ls","command":"id"}`, []client.Violation{{Path: "/command", Message: "twice"}}},
		{"escaped duplicate", "bash", `{"command":"ls","\u0063ommand":"id"}`, []client.Violation{{Path: "/command", Message: "twice"}}},
		{"another case", "bash", `{"command":"ls","COMMAND":"id"}`, []client.Violation{{Path: "/COMMAND", Message: "differ only in case"}}},
		{"Kelvin sign", "list", `{"k":1,"\u212a":2}`, []client.Violation{{Path: "/\u212a", Message: "differ only in case"}}},
		{"only another case", "bash", `{"Command":"ls"}`, []client.Violation{
			{Path: "/Command", Message: `did you mean "command"`}, {Path: "/command", Message: "is required"},
		}},
		{"trailing data", "bash", `{"command":"ls"} {}`, []client.Violation{{Message: "after the end"}}},
		{"unknown key", "bash", `{"command":"ls","nosuch":"zsh"}`, []client.Violation{{Path: "/nosuch", Message: "known are command, description"}}},
		{"a word of the key", "read", `{"a_path":"a"}`, []client.Violation{
			{Path: "/a_path", Message: `did you mean "file_path"?`}, {Path: "/file_path", Message: "is required"},
		}},
		{"background", "bash", `{"command":"ls","background":true}`, []client.Violation{{Path: "/background", Message: "not supported by this version"}}},
		{"both spellings", "read", `{"file_path":"a","filePath":"a"}`, []client.Violation{{Path: "/filePath", Message: "another spelling"}}},
		{"several", "read", `{"offset":-1,"limit":"x","x/y~":1}`, []client.Violation{
			{Path: "/file_path", Message: "is required"},
			{Path: "/limit", Message: "is a string, expected an integer"},
			{Path: "/offset", Message: "must be at least 1"},
			{Path: "/x~1y~0", Message: "not a known key"},
		}},
		{"fraction", "read", `{"file_path":"a","limit":1.5}`, []client.Violation{{Path: "/limit", Message: "is a number, expected an integer"}}},
		{"null for required", "bash", `{"command":null}`, []client.Violation{{Path: "/command", Message: "is null, expected a string"}}},
		{"empty", "bash", `{"command":""}`, []client.Violation{{Path: "/command", Message: "must not be empty"}}},
		{"not an object", "bash", `["ls"]`, []client.Violation{{Message: "is an array, expected an object"}}},
		{"enum", "grep", `{"pattern":"x","output_mode":"lines"}`, []client.Violation{{Path: "/output_mode", Message: `must be one of "content", "files", "count"`}}},
		{"item", "list", `{"ignore":["a",1]}`, []client.Violation{{Path: "/ignore/1", Message: "is a number, expected a string"}}},
		{"long pattern", "grep", `{"pattern":"` + strings.Repeat("a", 1<<20) + `"}`, []client.Violation{{Path: "/pattern", Message: "may have at most 32000"}}},
		{"too many items", "list", `{"ignore":[` + strings.Repeat(`"a",`, 1000) + `"a"]}`, []client.Violation{{Path: "/ignore", Message: "may have at most 1000"}}},
		{"too deep", "bash", `{"command":` + deep + `}`, []client.Violation{{Path: "/command" + strings.Repeat("/0", 63), Message: "nested deeper than 64"}}},
		{"not UTF-8", "bash", "{\"command\":\"\xff\"}", []client.Violation{{Path: "/command", Message: "invalid UTF-8 (at byte 12)"}}},
		{"NUL escape", "bash", `{"command":"a\u0000"}`, []client.Violation{{Path: "/command", Message: "NUL"}}},
		{"raw NUL", "bash", "{\"command\":\"a\x00\"}", []client.Violation{{Path: "/command", Message: `invalid character '\x00' in string`}}},
		{"half a surrogate", "bash", `{"command":"\ud800"}`, []client.Violation{{Path: "/command", Message: "surrogate"}}},
		{"mode", "file_put", `{"from":"a","path":"b","mode":512}`, []client.Violation{{Path: "/mode", Message: "at most 511"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := r.ParseHidden(tc.tool, json.RawMessage(tc.in))
			var e *client.Error
			if !errors.As(err, &e) || e.Code != client.CodeInvalidInput || !strings.Contains(e.Hint, "rewrite the input") {
				t.Fatalf("got %v, want invalid_input", err)
			}
			same := func(got, want client.Violation) bool {
				return got.Path == want.Path && strings.Contains(got.Message, want.Message)
			}
			if !slices.EqualFunc(e.Violations, tc.want, same) {
				t.Errorf("got %q\nwant %q", e.Violations, tc.want)
			}
			for _, v := range e.Violations {
				if !strings.Contains(e.Message, v.Message) {
					t.Errorf("message does not say %q: %s", v.Message, e.Message)
				}
			}
		})
	}
}

func TestUnknownTool(t *testing.T) {
	r := NewRegistry()
	for _, tc := range []struct{ name, hint string }{
		{"bahs", "did you mean bash?"},
		{"NotebookRead", "use read, which does that here; the tools are"},
		{"notebook_read", "use read, which"},
		{"str_replace_based_edit_tool", "use edit, which"},
		{"terminal", "use bash, which"},
		{"tree", "use list, which"},
		{"Task", "no tool does that here; the tools are bash"},
		{"WebFetch", "no tool does that here; the tools are bash"},
		{"todo", "use todowrite, which"},
		{"rea", "did you mean read? The tools are"},
		{"executor", "the tools are bash"},
		{"glop", "did you mean glob?"},
		{"webfetch", "no tool does that here; the tools are bash, read, write, edit, multiedit, apply_patch, glob, grep, list"},
		{"", "the tools are bash"},
		{strings.Repeat("bash", 100000), "the tools are bash"},
		{"File_Put", "the tools are"}, // hidden ones are not corrected to
		{"\xff\n", "the tools are"},
	} {
		_, err := r.Parse(tc.name, json.RawMessage(`{}`))
		var e *client.Error
		if !errors.As(err, &e) || e.Code != client.CodeUnknownTool || !strings.HasPrefix(e.Hint, tc.hint) || strings.Contains(e.Hint, "file_put") {
			t.Errorf("%.20q: got %v, want unknown_tool with %q", tc.name, err, tc.hint)
		}
		if len(e.Message) > 200 || strings.Contains(e.Message, "\n") {
			t.Errorf("%.20q: message %.300q", tc.name, e.Message)
		}
	}
}

// TestHiddenToolsDoNotExist: nothing tells one from a name that no tool has, above
// all not its schema.
func TestHiddenToolsDoNotExist(t *testing.T) {
	r := NewRegistry()
	said := func(name, in string) string {
		inv, err := r.Parse(name, json.RawMessage(in))
		if inv != nil || err == nil {
			t.Fatalf("%s %s was taken", name, in)
		}
		return strings.ReplaceAll(fmt.Sprintf("%+v", *err.(*client.Error)), name, "NAME") //nolint:errorlint // what Parse promises
	}
	for _, d := range r.tools {
		if !d.Hidden {
			continue
		}
		for _, in := range []string{``, `{}`, `{"x":1}`, `{"path":"a"}`, `{"from":"a","path":"b"}`, `{`, `null`, `[]`, `{"path":1,"path":2}`, "\xff", `{"PATH":""}`} {
			if got, want := said(d.Name, in), said("zzzzzzzzzzzz", in); got != want {
				t.Errorf("%s %s: %s\nwant %s", d.Name, in, got, want)
			}
		}
	}
}

// What schemas of our own do not use is worded as well.
func TestViolationWords(t *testing.T) {
	one, two := 1, 2
	d := &Definition{Name: "x", decode: aListing, input: object(
		required("list", &jsonschema.Schema{Type: "array", MinItems: &one, Items: object(required("id", text(2, 0, "")))}),
		optional("either", &jsonschema.Schema{Types: []string{"integer", "object"}}),
		optional("even", &jsonschema.Schema{Type: "array", UniqueItems: true}),
		optional("any", &jsonschema.Schema{MaxProperties: &two}),
	)}
	if err := d.compile(); err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]string{
		`{"list":[]}`:                                              "/list has 0 items, must have at least 1",
		`{"list":[{"id":"x"}]}`:                                    "/list/0/id has 1 character, must have at least 2",
		`{"list":[{"id":"xy","no":1}]}`:                            "/list/0/no is not a known key",
		`{"list":[{"id":"xy"}],"either":[]}`:                       "/either is an array, expected an integer or an object",
		`{"list":[{"id":"xy"}],"even":[1,1]}`:                      "/even items at 0 and 1 are equal",
		`{"list":[{"id":"xy"}],"any":{"a":1,"b":2,"c":3}}`:         "/any maxProperties: got 3, want 2",
		`{"list":[{"id":"xy"}],"any":"{\"a\":1,\"b\":2,\"c\":3}"}`: "", // takes a string
	} {
		_, err := d.parse(json.RawMessage(in))
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", in, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", in, err, want)
		}
	}
	var items []string
	for range 60 {
		items = append(items, "1")
	}
	_, err := d.parse(json.RawMessage(`{"list":[` + strings.Join(items, ",") + `]}`))
	var e *client.Error
	if !errors.As(err, &e) || len(e.Violations) != maxViolations || !strings.Contains(e.Message, "and 10 more") {
		t.Errorf("60 violations: got %.200v", err)
	}
}

func TestCompileRefusesWrongSchemas(t *testing.T) {
	if err := (&Definition{Name: "x", input: object(required("p", &jsonschema.Schema{Type: "number", Pattern: "("}))}).compile(); err == nil {
		t.Error("a pattern that is no regular expression was taken")
	}
}

// Prefixed keys, as of a list of edits, have their aliases too.
func TestParseNestedAliases(t *testing.T) {
	d := &Definition{Name: "x", decode: aListing, input: object(required("edits", listOf(object(
		required("old_string", text(0, 0, "")), optional("replace_all", boolean(""))), 10, "")))}
	if err := d.compile(); err != nil {
		t.Fatal(err)
	}
	inv, err := d.parse(json.RawMessage(`{"edits":"[{\"oldString\":\"a\",\"replaceAll\":\"true\"}]"}`))
	if want := `{"edits":[{"old_string":"a","replace_all":true}]}`; err != nil || string(inv.JSON) != want || inv.Lenient != 2 {
		t.Errorf("got %+v, %v, want %s", inv, err, want)
	}
	_, err = d.parse(json.RawMessage(`{"edits":[{"oldString":"a","old_string":"b"}]}`))
	if err == nil || !strings.Contains(err.Error(), "/edits/0/oldString is another spelling") {
		t.Errorf("got %v", err)
	}
}
