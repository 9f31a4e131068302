package run

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
)

func TestEdit(t *testing.T) {
	env, dir := fileEnv(t)
	writeFile(t, dir+"/f", "\xef\xbb\xbfone\r\ntwo\r\nthree")
	r := mustCall(t, env, Edit{}, object{"file_path": "f", "old_string": "two\nthree", "new_string": "2\n3"})
	if got := contentOf(t, dir+"/f"); got != "\xef\xbb\xbfone\r\n2\r\n3" {
		t.Errorf("content %q", got)
	}
	if r.Output != "Edited f at line 2: 2 lines added, 2 removed.\nThe lines are now:\n1\tone\n2\t2\n3\t3" || r.Metadata["strategy"] != "exact" || r.Metadata["places"] != 1 {
		t.Errorf("%+v", r)
	}
	r = mustCall(t, env, Edit{}, object{"file_path": "new/g", "old_string": "", "new_string": "a\n"})
	if contentOf(t, dir+"/new/g") != "a\n" || r.Output != "Created new/g: 2 bytes, 1 line." {
		t.Errorf("created: %+v", r)
	}
	writeFile(t, dir+"/f", "x\ny\nx\n")
	r = mustCall(t, env, Edit{}, object{"file_path": "f", "old_string": "x", "new_string": "z", "replace_all": true})
	if r.Output != "Edited f in 2 places, the first at line 1: 2 lines added, 2 removed.\nThe lines are now:\n1\tz\n2\ty\n3\tz" || contentOf(t, dir+"/f") != "z\ny\nz\n" {
		t.Errorf("all: %+v", r)
	}
	writeFile(t, dir+"/f", "\tif x {\n\t\tfoo()\n\t}\n")
	r = mustCall(t, env, Edit{}, object{"file_path": "f", "old_string": "if x {\n    foo()\n}", "new_string": "if x {\n    bar()\n}"})
	if contentOf(t, dir+"/f") != "\tif x {\n\t\tbar()\n\t}\n" || r.Metadata["strategy"] != "line_trimmed" || !strings.Contains(r.Output, "-\t\tfoo()\n+\t\tbar()") {
		t.Errorf("fuzzy: %+v", r)
	}
}

func TestEditRefused(t *testing.T) {
	tests := []struct {
		name, content, old, new string
		settings, want          string
		code                    Code
	}{
		{name: "same", content: "a", old: "a", new: "a", code: CodeInvalidInput},
		{name: "same but for endings", content: "a", old: "a\n", new: "a\r\n", code: CodeInvalidInput},
		{name: "create over a file", content: "a", old: "", new: "b", want: "f exists: an empty old_string only creates files"},
		{name: "create over an empty file", content: "", old: "", new: "b", want: "f exists"},
		{name: "ambiguous", content: "a\nb\na\n", old: "a", new: "c", want: "old_string is not unique in f: the old text was found at 2 places, beginning in lines 1, 3 (exact matching)"},
		{name: "missing", content: "abcdef\nhello wonderful world\n", old: "hello wonderfull word!!", new: "x", want: "lines 2-2, 8"},
		{name: "nothing like it", content: "abc", old: "1234567", new: "x", want: "Nothing in the file resembles it"},
		{name: "binary", content: "a\x00", old: "a", new: "b", want: "binary data"},
		{name: "latin-1", content: strings.Repeat("a\n", 5000) + "\xe9", old: "b", new: "c", want: "not valid UTF-8 (first at byte 10000)"},
		{name: "strict", content: "  a\n  b\n", old: "a\nb", new: "c", settings: `{"matching":"strict"}`, want: "not found"},
		{name: "bad setting", content: "a", old: "a", new: "c", settings: `{"matching":"loose"}`, code: CodeInternal},
		{name: "unread", content: "a", old: "a", new: "c", settings: `{"require_read":true}`, want: "has not been read in its present state"},
		{name: "no change", content: "x\n a \n", old: "a ", new: "a", settings: `{}`, want: ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			env, dir := fileEnv(t)
			writeFile(t, dir+"/f", tt.content)
			env.Settings = json.RawMessage(tt.settings)
			r, err := callTool(t, env, Edit{}, object{"file_path": "f", "old_string": tt.old, "new_string": tt.new})
			if tt.code != "" {
				expectCode(t, err, tt.code)
			} else if err != nil || r.IsError != (tt.want != "") || !strings.Contains(r.Output, tt.want) {
				t.Errorf("%+v, %v; want %q", r, err, tt.want)
			}
			if got := contentOf(t, dir+"/f"); tt.want != "" && got != tt.content {
				t.Errorf("content %q", got)
			}
		})
	}
	env, _ := fileEnv(t)
	r, err := callTool(t, env, Edit{}, object{"file_path": "nope", "old_string": "a", "new_string": "b"})
	if err != nil || !r.IsError || !strings.Contains(r.Output, "/w/nope does not exist") {
		t.Errorf("missing file: %+v, %v", r, err)
	}
	env, dir := fileEnv(t)
	writeFile(t, dir+"/f", strings.Repeat("a", 1<<17))
	r, err = callTool(t, env, Edit{}, object{"file_path": "f", "old_string": "a", "new_string": strings.Repeat("b", 1000), "replace_all": true})
	if err != nil || !r.IsError || !strings.Contains(r.Output, "would become") {
		t.Errorf("growth: %+v, %v", r, err)
	}
}

// TestExpectedReplacements: as many places are replaced as are expected, or none; the number found is said.
func TestExpectedReplacements(t *testing.T) {
	for _, tt := range []struct {
		content         string
		more            object
		want, wantError string
	}{
		{"a\nb\na\n", object{"expected_replacements": 2}, "c\nb\nc\n", ""},
		{"a\nb\na\n", object{"expected_replacements": 2, "replace_all": true}, "c\nb\nc\n", ""},
		{"a\n", object{"expected_replacements": 1}, "c\n", ""},
		{"a\n", object{"expected_replacements": 1, "replace_all": true}, "c\n", ""},
		{"a\na\n", object{"expected_replacements": 1, "line": 2}, "a\nc\n", ""},
		{"aaaa", object{"old_string": "aa", "expected_replacements": 2}, "cc", ""},
		{"a\nb\na\na\n", object{"expected_replacements": 2}, "", "2 places were expected, and the old text was found at 3, beginning in lines 1, 3, 4. Give 3 to replace all of them, or occurrence or line for one."},
		{"a\nb\na\n", object{"expected_replacements": 1, "replace_all": true}, "", "1 place was expected, and the old text was found at 2"},
		{"a\nb\na\n", object{"expected_replacements": 1}, "", "not unique in f: the old text was found at 2 places"},
		{"b\na\n", object{"expected_replacements": 3}, "", "3 places were expected, and the old text was found at one, in line 2. Leave expected_replacements out to replace that one."},
		{"  a b\n\ta b\n", object{"old_string": "a  b", "expected_replacements": 3}, "", "was found at 2"},
		{"b\n", object{"expected_replacements": 3}, "", "old_string was not found in f"},
	} {
		for _, tool := range []string{"edit", "multiedit"} {
			env, dir := fileEnv(t)
			writeFile(t, dir+"/f", tt.content)
			in := object{"old_string": "a", "new_string": "c"}
			maps.Copy(in, tt.more)
			var r *Result
			var err error
			if tool == "edit" {
				in["file_path"] = "f"
				r, err = callTool(t, env, Edit{}, in)
			} else {
				r, err = callTool(t, env, MultiEdit{}, object{"file_path": "f", "edits": []object{in}})
			}
			if want := cmp.Or(tt.want, tt.content); err != nil || r.IsError != (tt.wantError != "") || !strings.Contains(r.Output, tt.wantError) || contentOf(t, dir+"/f") != want {
				t.Errorf("%s of %q, %v: %+v, %v; the file is %q, want %q", tool, tt.content, tt.more, r, err, contentOf(t, dir+"/f"), want)
			}
		}
	}
	env, dir := fileEnv(t)
	writeFile(t, dir+"/f", "a\na\n")
	_, err := callTool(t, env, Edit{}, object{"file_path": "f", "old_string": "a", "new_string": "c", "expected_replacements": 2, "line": 1})
	expectCode(t, err, CodeInvalidInput)
}

// With require_read an edit needs a read of the present content; what the
// session itself wrote counts as read.
func TestRequireRead(t *testing.T) {
	env, dir := fileEnv(t)
	env.Settings = json.RawMessage(`{"require_read":true}`)
	writeFile(t, dir+"/f", "\xef\xbb\xbf"+strings.Repeat("line\n", 3000)+"end")
	edit := func(old, new string) bool {
		r, err := callTool(t, env, Edit{}, object{"file_path": "f", "old_string": old, "new_string": new})
		if err != nil {
			t.Fatal(err)
		}
		return !r.IsError
	}
	if edit("end", "END") {
		t.Error("edited without a read")
	}
	mustCall(t, env, Read{}, object{"file_path": "f", "limit": 1})
	if !edit("end", "END") {
		t.Error("refused after a read")
	}
	if !edit("END", "end") {
		t.Error("refused after its own edit")
	}
	writeFile(t, dir+"/f", "end, but other")
	if edit("end", "END") {
		t.Error("edited what somebody else changed")
	}
}

// Of edits at the same time none is lost: each lands or is refused.
func TestConcurrentEdits(t *testing.T) {
	env, dir := fileEnv(t)
	const n = 20
	var content strings.Builder
	for i := range n {
		fmt.Fprintf(&content, "<%d>\n", i)
	}
	writeFile(t, dir+"/f", content.String())
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for range 200 {
				r, err := callTool(t, env, Edit{}, object{"file_path": "f", "old_string": fmt.Sprintf("<%d>", i), "new_string": fmt.Sprintf("done %d", i)})
				var e *Error
				switch {
				case errors.As(err, &e) && e.Code == CodeStale:
					continue
				case err != nil:
					t.Error(err)
				case r.IsError && strings.Contains(r.Output, "holds a lock"):
					continue // for longer than it is waited for
				case r.IsError:
					t.Errorf("edit %d failed: %s", i, r.Output)
				}
				return
			}
			t.Errorf("edit %d was refused 200 times", i)
		})
	}
	wg.Wait()
	got := contentOf(t, dir+"/f")
	for i := range n {
		if !strings.Contains(got, fmt.Sprintf("done %d\n", i)) {
			t.Errorf("edit %d was lost: %q", i, got)
		}
	}
}

// Line numbers that were copied from an answer of read are named as what is wrong.
func TestEditWithLineNumbers(t *testing.T) {
	env, dir := fileEnv(t)
	writeFile(t, dir+"/f", "package p\n\nfunc f() {\n}\n")
	for _, tt := range []struct {
		old  string
		says bool
	}{
		{"3\tfunc f() {\n4\t}", true},
		{"     1→package p\n     2→\n", true},
		{"  3: func f() {", true},
		{"3 apples", false},
		{"func g(int) {\n4\t}", false},
		{"99", false},
	} {
		r, err := callTool(t, env, Edit{}, object{"file_path": "f", "old_string": tt.old, "new_string": "x"})
		if err != nil || !r.IsError || strings.Contains(r.Output, "leave them out") != tt.says {
			t.Errorf("%q: %+v, %v", tt.old, r, err)
		}
	}
}
