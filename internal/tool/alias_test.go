package tool

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// What models write that were trained on other systems.
func TestAliases(t *testing.T) {
	r := NewRegistry()
	for _, tc := range []struct{ tool, in, want, aliases string }{
		{
			"Grep", `{"pattern":"x","glob":"*.go","-i":true,"-n":true,"-A":2,"-B":1,"head_limit":5,"output_mode":"files_with_matches"}`,
			`grep {"context":2,"ignore_case":true,"include":"*.go","limit":5,"output_mode":"files","pattern":"x"}`, "-A -B -i -n files_with_matches glob head_limit",
		},
		{"Grep", `{"pattern":"x","type":"rust","-C":3,"head_limit":0}`, `grep {"context":3,"include":"*.rs","pattern":"x"}`, "-C head_limit type"},
		{"Grep", `"{\"pattern\":\"x\",\"-n\":true}"`, `grep {"pattern":"x"}`, "-n"},
		{"grep_search", `{"query":"x","case_sensitive":false,"include_pattern":"*.c"}`, `grep {"ignore_case":true,"include":"*.c","pattern":"x"}`, "case_sensitive grepsearch include_pattern query"},
		{"Bash", `{"command":"ls","run_in_background":false}`, `bash {"command":"ls"}`, "run_in_background"},
		{
			"shell", `{"command":["bash","-lc","ls | wc"],"workdir":"/w","timeout_ms":5,"with_escalated_permissions":true,"justification":"x"}`,
			`bash {"command":"ls | wc","timeout":5,"workdir":"/w"}`, "justification shell timeout_ms with_escalated_permissions words",
		},
		{"bash", `{"command":"echo a\r\necho b\r\n"}`, `bash {"command":"echo a\necho b\n"}`, CRLF},
		{"bash", `{"command":["bash","-lc","echo a\r\necho b\r\n"]}`, `bash {"command":"echo a\necho b\n"}`, "crlf words"},
		{"bash", `{"command":["printf","a\r\n"]}`, `bash {"command":"printf $'a\\r\\n'"}`, "words"},
		{"bash", `{"cmd":"echo a\r\necho b\r"}`, `bash {"command":"echo a\necho b"}`, "cmd crlf"},
		{"bash", `{"command":"printf 'a\r\n'\necho b"}`, `bash {"command":"printf 'a\r\n'\necho b"}`, ""},
		{"functions.shell", `{"command":["rm","a b"]}`, `bash {"command":"rm 'a b'"}`, "shell words"},
		{"exec_command", `{"cmd":"ls","yield_time_ms":10,"login":false}`, `bash {"command":"ls"}`, "cmd execcommand login yield_time_ms"},
		{"run_shell_command", `{"command":"ls","directory":"a","is_background":false}`, `bash {"command":"ls","workdir":"a"}`, "directory is_background runshellcommand"},
		{"read_file", `{"absolute_path":"/a","offset":3}`, `read {"file_path":"/a","offset":3}`, "absolute_path readfile"},
		{"Read", `{"filePath":"a"}`, `read {"file_path":"a"}`, CamelCase},
		{"mcp__toold__read", `{"file_path":"a"}`, `read {"file_path":"a"}`, ""},
		{"str_replace_based_edit_tool", `{"command":"view","path":"a","view_range":[3,7]}`, `read {"file_path":"a","limit":5,"offset":3}`, "command path strreplacebasededittool view_range"},
		{"str_replace_based_edit_tool", `{"command":"view","path":"a","view_range":[3,-1]}`, `read {"file_path":"a","offset":3}`, "command path strreplacebasededittool view_range"},
		{"str_replace_based_edit_tool", `{"command":"create","path":"a","file_text":"x"}`, `write {"content":"x","file_path":"a"}`, "command file_text path strreplacebasededittool"},
		{"str_replace_editor", `{"command":"str_replace","path":"a","old_str":"x"}`, `edit {"file_path":"a","new_string":"","old_string":"x"}`, "command new_str old_str path strreplaceeditor"},
		{
			"replace", `{"file_path":"a","old_string":"x","new_string":"y","expected_replacements":2,"instruction":"z"}`,
			`edit {"expected_replacements":2,"file_path":"a","new_string":"y","old_string":"x"}`, "instruction replace",
		},
		{"list_directory", `{"dir_path":"a"}`, `list {"path":"a"}`, "dir_path listdirectory"},
		{"TodoWrite", `{"todos":[{"content":"a","status":"pending","activeForm":"b"}]}`, `todowrite {"todos":[{"content":"a","status":"pending"}]}`, "activeForm"},
		{"apply_patch", `{"command":["apply_patch","*** Begin Patch\n*** Delete File: a\n*** End Patch"]}`, `apply_patch {"patch":"*** Begin Patch\n*** Delete File: a\n*** End Patch"}`, "words"},
		{"update_plan", `{"plan":[{"step":"a","status":"in_progress"}],"explanation":"b"}`, `todowrite {"todos":[{"content":"a","status":"in_progress"}]}`, "explanation plan step updateplan"},
		{
			"apply_patch", `"*** Begin Patch\n*** Delete File: a\n*** End Patch\n"`,
			`apply_patch {"patch":"*** Begin Patch\n*** Delete File: a\n*** End Patch\n"}`, "text",
		},
		{
			"functions.apply_patch", `"{\"input\":\"*** Begin Patch\\n*** Delete File: a\\n*** End Patch\"}"`,
			`apply_patch {"patch":"*** Begin Patch\n*** Delete File: a\n*** End Patch"}`, "input",
		},
		{"batch", `{"tool_calls":[{"tool":"read","parameters":{"file_path":"a"}}]}`, `batch {"calls":[{"input":{"file_path":"a"},"tool":"read"}]}`, "parameters tool_calls"},
		{"multi_tool_use.parallel", `{"tool_uses":[{"recipient_name":"functions.read","parameters":{}}]}`, `batch {"calls":[{"input":{},"tool":"functions.read"}]}`, "multitooluse.parallel parameters recipient_name tool_uses"},
		{"read_file", `{"path":"a","start_line":3,"end_line":7}`, `read {"file_path":"a","limit":5,"offset":3}`, "end_line path readfile start_line"},
		{"read_file", `{"filePath":"a","startLine":1,"endLine":7}`, `read {"file_path":"a","limit":7,"offset":1}`, "camelCase end_line readfile start_line"},
		{"view_image", `{"path":"a.png"}`, `read {"file_path":"a.png"}`, "path viewimage"},
		{"developer__text_editor", `{"command":"view","path":"a"}`, `read {"file_path":"a"}`, "command developertexteditor path"},
		{"developer__text_editor", `{"command":"write","path":"a","file_text":"x"}`, `write {"content":"x","file_path":"a"}`, "command developertexteditor file_text path"},
		{"developer__text_editor", `{"command":"str_replace","path":"a","old_str":"x","new_str":"y"}`, `edit {"file_path":"a","new_string":"y","old_string":"x"}`, "command developertexteditor new_str old_str path"},
		{"developer__shell", `{"command":"ls"}`, `bash {"command":"ls"}`, "developershell"},
		{"run_in_terminal", `{"command":"ls","explanation":"x","isBackground":false}`, `bash {"command":"ls"}`, "camelCase explanation is_background runinterminal"},
		{"container.exec", `{"cmd":["ls"],"tty":false,"shell":"/bin/bash"}`, `bash {"command":"ls"}`, "cmd container.exec no_effect shell words"},
		{"shell_command", `{"command":"ls","dir_path":"d"}`, `bash {"command":"ls","workdir":"d"}`, "dir_path shellcommand"},
		{
			"grep_files", `{"pattern":"x","exclude_pattern":"*.o","names_only":true,"fixed_strings":true,"before":1,"after":4,"no_ignore":false,"offset":0}`,
			`grep {"context":4,"include":"!*.o","literal":true,"output_mode":"files","pattern":"x"}`, "after before exclude_pattern fixed_strings grepfiles names_only no_effect",
		},
		{"search_files", `{"regex":"x","file_pattern":"*.go"}`, `grep {"include":"*.go","pattern":"x"}`, "file_pattern regex searchfiles"},
		{"grep_search", `{"query":"x","isRegexp":false,"includePattern":"*.go"}`, `grep {"include":"*.go","literal":true,"pattern":"x"}`, "camelCase grepsearch include_pattern is_regexp query"},
		{"glob", `{"pattern":"x","case_sensitive":true,"respect_git_ignore":true}`, `glob {"pattern":"x"}`, "case_sensitive respect_git_ignore"},
		{"list_files", `{"path":"a","recursive":true,"depth":0}`, `list {"path":"a"}`, "listfiles no_effect recursive"},
		{"write_file", `{"file_path":"a","content":"","line_count":3,"overwrite":true}`, `write {"content":"","file_path":"a"}`, "line_count overwrite writefile"},
		{"replace", `{"file_path":"a","old_string":"x","new_string":"y","allow_multiple":true}`, `edit {"file_path":"a","new_string":"y","old_string":"x","replace_all":true}`, "allow_multiple replace"},
		{
			"replace_in_file", `{"path":"a","diff":"------- SEARCH\nx\n  y\n=======\nz\n+++++++ REPLACE\n"}`,
			`edit {"file_path":"a","new_string":"z","old_string":"x\n  y"}`, "diff path replaceinfile",
		},
		{"replace_string_in_file", `{"filePath":"a","oldString":"x","newString":"y"}`, `edit {"file_path":"a","new_string":"y","old_string":"x"}`, "camelCase replacestringinfile"},
		{"edit", `{"file_path":"a","edits":[{"old_string":"x","new_string":"y"}]}`, `edit {"file_path":"a","new_string":"y","old_string":"x"}`, "edits"},
		{"todo_write", `{"todos":["a","b"]}`, `todowrite {"todos":[{"content":"a","status":"pending"},{"content":"b","status":"pending"}]}`, "texts"},
		{"read_file", `{"target_file":"a","start_line_one_indexed":3,"end_line_one_indexed_inclusive":7,"should_read_entire_file":false,"explanation":"x"}`, `read {"file_path":"a","limit":5,"offset":3}`, "end_line_one_indexed_inclusive explanation readfile should_read_entire_file start_line_one_indexed target_file"},
		{"read", `{"path":"a","start_line":3,"limit":4}`, `read {"file_path":"a","limit":4,"offset":3}`, "path start_line"},
		{"read", `{"path":"a","offset":3,"end_line":4}`, `read {"file_path":"a","limit":2,"offset":3}`, "end_line path"},
		{"read", `{"path":"a","view_range":[0,20]}`, `read {"file_path":"a","limit":20,"offset":1}`, "path view_range"},
		{"multiedit", `{"path":"a","edits":[{"oldText":"x","newText":"y","allow_multiple":true}]}`, `multiedit {"edits":[{"new_string":"y","old_string":"x","replace_all":true}],"file_path":"a"}`, "allow_multiple newText oldText path"},
		{"edit", `{"path":"a","edits":[{"oldText":"x","newText":"y"}]}`, `edit {"file_path":"a","new_string":"y","old_string":"x"}`, "edits newText oldText path"},
		{"shell", `{"command":["apply_patch","*** Begin Patch\n*** Delete File: a\n*** End Patch"]}`, `apply_patch {"patch":"*** Begin Patch\n*** Delete File: a\n*** End Patch"}`, "words"},
		{"container.exec", `{"cmd":["bash","-lc","apply_patch <<'EOF'\n*** Begin Patch\n*** Delete File: a\n*** End Patch\nEOF\n"]}`, `apply_patch {"patch":"*** Begin Patch\n*** Delete File: a\n*** End Patch"}`, "words"},
		{"bash", `{"command":"apply_patch <<EOF\n*** Begin Patch\n*** Delete File: a\n*** End Patch\nEOF","workdir":"/w/d"}`, `apply_patch {"patch":"*** Begin Patch\n*** Delete File: /w/d/a\n*** End Patch"}`, "words"},
		{"bash", `{"command":"cd e && apply_patch <<'EOF'\n*** Begin Patch\n*** Delete File: a\n*** End Patch\nEOF","workdir":"/w/d"}`, `apply_patch {"patch":"*** Begin Patch\n*** Delete File: /w/d/e/a\n*** End Patch"}`, "words"},
		{"bash", `{"command":"cd '/w/e f'\napply_patch <<'EOF'\n*** Begin Patch\n*** Delete File: a\n*** End Patch\nEOF","workdir":"/w/d"}`, `apply_patch {"patch":"*** Begin Patch\n*** Delete File: /w/e f/a\n*** End Patch"}`, "words"},
		{"bash", `{"command":"cd $X && apply_patch <<EOF\nx\nEOF"}`, `bash {"command":"cd $X \u0026\u0026 apply_patch \u003c\u003cEOF\nx\nEOF"}`, ""},
		{"bash", `{"command":"cd - && apply_patch <<EOF\nx\nEOF"}`, `bash {"command":"cd - \u0026\u0026 apply_patch \u003c\u003cEOF\nx\nEOF"}`, ""},
		{"bash", `{"command":"cat; apply_patch <<EOF\nx\nEOF"}`, `bash {"command":"cat; apply_patch \u003c\u003cEOF\nx\nEOF"}`, ""},
		{"bash", `{"command":"apply_patch <<EOF\nx\nEOF\nls\nEOF"}`, `bash {"command":"apply_patch \u003c\u003cEOF\nx\nEOF\nls\nEOF"}`, ""},
		{"skill", `{"skill":"a"}`, `skill {"name":"a"}`, "skill"},
	} {
		inv, err := r.Parse(tc.tool, json.RawMessage(tc.in))
		if err != nil {
			t.Errorf("%s %s: %v", tc.tool, tc.in, err)
			continue
		}
		got := slices.Sorted(slices.Values(inv.Aliases))
		if text := inv.Tool.Name + " " + string(inv.JSON); text != tc.want || strings.Join(got, " ") != tc.aliases {
			t.Errorf("%s %s:\ngot  %s, %q\nwant %s, %q", tc.tool, tc.in, text, got, tc.want, tc.aliases)
		}
		for _, a := range got {
			if !slices.Contains(inv.Tool.Aliases(), a) {
				t.Errorf("%s: %q is not among those that %s can be counted with: %q", tc.in, a, inv.Tool.Name, inv.Tool.Aliases())
			}
		}
	}
}

func TestAliasesRefused(t *testing.T) {
	r := NewRegistry()
	for _, tc := range []struct{ tool, in, want string }{
		{"Bash", `{"command":"ls","run_in_background":true}`, "background commands are not supported"},
		{"Grep", `{"pattern":"x","glob":"a","include":"b"}`, `/glob is another name of "include", which is there too`},
		{"TodoWrite", `{"todos":[{"content":"a","step":"b","status":"pending"}]}`, `/todos/0/step is another name of "content"`},
		{"str_replace_based_edit_tool", `{"command":"insert","path":"a","insert_line":2,"new_str":"x"}`, "/insert_line give the line before the place as old_string"},
		{"str_replace_based_edit_tool", `{"command":"undo_edit","path":"a"}`, "there is no tool called"},
		{"edit", `{"file_path":"a","edits":[{"old_string":"x","new_string":"y"},{"old_string":"z","new_string":"y"}]}`, "/edits give several edits of one file to multiedit"},
		{"replace_in_file", `{"path":"a","diff":"<<<<<<< SEARCH\nx\n=======\ny\n>>>>>>> REPLACE\n<<<<<<< SEARCH\nx\n=======\ny\n>>>>>>> REPLACE\n"}`, "/diff give the one text between"},
		{"read", `{"path":"a","pages":"1-3"}`, "/pages pages cannot be chosen"},
		{"list_files", `{"path":"a","recursive":false}`, "/recursive the whole tree is listed"},
		{"list", `{"depth":2}`, "/depth the whole tree is listed"},
		{"glob", `{"pattern":"x","case_sensitive":false}`, "/case_sensitive upper and lower case differ"},
		{"grep", `{"pattern":"x","offset":20}`, "/offset there is no offset"},
		{"grep", `{"pattern":"x","no_ignore":true}`, "/no_ignore ignored files are not searched"},
		{"bash", `{"command":"ls","tty":true}`, "/tty there is no terminal"},
		{"bash", `{"command":"ls","shell":"zsh"}`, "/shell commands are run by the session's shell"},
		{"write", `{"file_path":"a","content":"x","overwrite":false}`, "/overwrite a file that is there is replaced"},
		{"str_replace_based_edit_tool", `["view"]`, "there is no tool called"},
		{"shell", `{"command":[]}`, "/command must not be empty"},
		{"shell", `{"command":["a",1]}`, "/command is an array, expected a string"},
		{"Grep", `{"pattern":"x","type":"cobol"}`, "no such type of files is known here"},
		{"Grep", `{"pattern":"x","type":"go","glob":"*.go"}`, "or include says already which"},
		{"bash", `{"command":"ls","Workdir":""}`, `/Workdir is not a known key; did you mean "workdir"?`},
		{"edit", `{"path":"a","insert_line":0,"new_str":"x"}`, "/insert_line give the line before the place as old_string"},
		{"read", `{"path":"a","start_line":3,"end_line":4,"limit":2}`, "/end_line is not a known key"},
		{"read", `{"path":"a","view_range":[5,2]}`, "/view_range is not a known key"},
		{"bash", `"ls"`, "is a string, expected an object"},
		{"file_Put", `{}`, "there is no tool called"},
	} {
		if inv, err := r.Parse(tc.tool, json.RawMessage(tc.in)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %s: got %v, %v, want %q", tc.tool, tc.in, inv, err, tc.want)
		}
	}
}

// TestFieldsWithoutEffect: what no tool knows and asks for nothing is left out, at every depth, and
// counted; what asks for something is refused, by true or by false.
func TestFieldsWithoutEffect(t *testing.T) {
	r := NewRegistry()
	for tool, around := range map[string]string{
		"bash": `{"command":"ls"%s}`, "todowrite": `{"todos":[{"content":"a","status":"pending"%s}]}`,
		"multiedit": `{"file_path":"a","edits":[{"old_string":"x","new_string":"y"%s}]}`,
		"batch":     `{"calls":[{"tool":"read","input":{}%s}]}`,
	} {
		plain := strings.Replace(around, "%s", "", 1)
		want, err := r.Parse(tool, json.RawMessage(plain))
		if err != nil {
			t.Fatal(err)
		}
		for name, asksByNo := range map[string]bool{
			"some_thing": false, "Xyz": false, "-q": false, "minimum": false, "recursion": false,
			"overwrite": true, "Create": true, "RECURSIVE": true, "caseSensitive": true, "respect_git_ignore": true, "max_x": true, "maxX": true, "expected_x": true,
		} {
			for value, asks := range map[string]bool{
				"null": false, `""`: false, "[]": false, "{}": false, "false": asksByNo, "0": asksByNo, "-0.0e3": asksByNo,
				"true": true, "1": true, `"x"`: true, `" "`: true, "[null]": true, `{"":0}`: true, `"0"`: true,
			} {
				field := fmt.Sprintf(`,%q:%s`, name, value)
				got, err := r.Parse(tool, json.RawMessage(strings.Replace(around, "%s", field, 1)))
				switch {
				case asks && err == nil:
					t.Errorf("%s with %s is taken", tool, field)
				case !asks && err != nil:
					t.Errorf("%s with %s: %v", tool, field, err)
				case !asks && (string(got.JSON) != string(want.JSON) || !slices.Equal(got.Aliases, []string{NoEffect})):
					t.Errorf("%s with %s is %s, counted as %q", tool, field, got.JSON, got.Aliases)
				}
			}
		}
	}
}

// An input that is a text means one field of a tool that says which.
func TestTextInput(t *testing.T) {
	d := &Definition{Name: "x", decode: aListing, also: aliases{text: "patch"}, input: object(required("patch", text(1, 0, "")))}
	if err := d.compile(); err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]string{
		`"*** Begin\n{}"`:     `{"patch":"*** Begin\n{}"}`,
		`"{\"patch\":\"a\"}"`: `{"patch":"a"}`,
		`{"patch":"a"}`:       `{"patch":"a"}`,
		`"[1]"`:               `{"patch":"[1]"}`,
	} {
		if inv, err := d.parse(json.RawMessage(in)); err != nil || string(inv.JSON) != want {
			t.Errorf("%s: got %v, %v, want %s", in, inv, err, want)
		}
	}
}

// An alias never hides what a tool has itself, and leads to something.
func TestAliasesAreWhole(t *testing.T) {
	r := NewRegistry()
	seen := make(map[string]string)
	for _, d := range r.All() {
		for _, name := range d.also.tools {
			if other, ok := seen[name]; ok || d.Hidden {
				t.Errorf("%q is both %s and %s", name, other, d.Name)
			}
			seen[name] = d.Name
			if own, ok := r.Get(name); ok {
				t.Errorf("%q, another name of %s, is %s itself", name, d.Name, own.Name)
			}
		}
		if field := d.also.text; field != "" && (!own(d.input, field) || !slices.Contains(types(d.input.Properties[field]), "string") || !slices.Equal(d.input.Required, []string{field})) {
			t.Errorf("%s: a text alone means %q, which is not the one field that it needs, and a string", d.Name, field)
		}
		for path, to := range d.also.fields {
			list, field, in := strings.Cut(path, "/")
			at := d.input
			if in {
				at = d.input.Properties[list].Items
			} else {
				field = list
			}
			if own(at, field) || to != "" && !own(at, to) {
				t.Errorf("%s: %q → %q", d.Name, path, to)
			}
		}
	}
}

func own(s *jsonschema.Schema, field string) bool { return s != nil && s.Properties[field] != nil }

// FuzzAliases: whatever a client writes, what is taken is in normal form.
func FuzzAliases(f *testing.F) {
	r := NewRegistry()
	f.Add("Grep", `{"pattern":"x","-A":2,"type":"go"}`)
	f.Add("shell", `{"command":["bash","-lc","x"]}`)
	f.Add("str_replace_editor", `{"command":"view","path":"a","view_range":[1,2]}`)
	f.Add("update_plan", `{"plan":[{"step":"a","status":"pending"}]}`)
	f.Fuzz(func(t *testing.T, name, in string) {
		inv, err := r.Parse(name, json.RawMessage(in))
		if err != nil {
			return
		}
		again, err := r.Parse(inv.Tool.Name, inv.JSON)
		if err != nil || string(again.JSON) != string(inv.JSON) || len(again.Aliases) > 0 || again.Lenient > 0 {
			t.Errorf("%s %s: %s is parsed again as %v, %v", name, in, inv.JSON, again, err)
		}
		for _, a := range inv.Aliases {
			if !slices.Contains(inv.Tool.Aliases(), a) {
				t.Errorf("%s %s: alias %q is not one of %s", name, in, a, inv.Tool.Name)
			}
		}
	})
}
