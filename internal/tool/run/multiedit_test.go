package run

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

func edits(file string, all ...object) object { return object{"file_path": file, "edits": all} }

func edit(old, new string, more ...any) object {
	e := object{"old_string": old, "new_string": new}
	for i := 0; i < len(more); i += 2 {
		e[more[i].(string)] = more[i+1]
	}
	return e
}

func TestMultiEdit(t *testing.T) {
	env, dir := fileEnv(t)
	writeFile(t, dir+"/f", "\xef\xbb\xbfone\r\ntwo\r\nthree")
	r := mustCall(t, env, MultiEdit{}, edits("f", edit("two\n", "2\n"), edit("2\nthree", "two\nmore\n3")))
	if got := contentOf(t, dir+"/f"); got != "\xef\xbb\xbfone\r\ntwo\r\nmore\r\n3" {
		t.Errorf("content %q", got)
	}
	if !strings.HasPrefix(r.Output, "Edited f by 2 edits in 2 places: 2 lines added, 1 removed.\nThe lines are now:\n1\t") || r.Metadata["strategy"] != "exact" || r.Metadata["places"] != 2 {
		t.Errorf("%+v", r)
	}
	if diff, _ := r.Metadata["diff"].(string); strings.Count(diff, "@@") != 2 || strings.Contains(diff, "+2") {
		t.Errorf("not one diff of all: %q", diff)
	}
	r = mustCall(t, env, MultiEdit{}, edits("new/g", edit("", "a\nb\n"), edit("b", "c")))
	if contentOf(t, dir+"/new/g") != "a\nc\n" || r.Output != "Created new/g at line 2: 2 lines added, 0 removed." {
		t.Errorf("created: %+v", r)
	}
	writeFile(t, dir+"/f", "\tif x {\n\t\tfoo()\n\t}\n")
	r = mustCall(t, env, MultiEdit{}, edits("f", edit("x", "y"), edit("if y {\n    foo()\n}", "if y {\n    bar()\n}")))
	if !strings.Contains(r.Output, "\nold_string of edit 2 was not in the file exactly; it was found by line_trimmed matching.") || r.Metadata["strategy"] != "line_trimmed" {
		t.Errorf("fuzzy: %+v", r)
	}
}

// An edit that fails leaves the file as it is, and says which of them it was.
func TestMultiEditAllOrNothing(t *testing.T) {
	for _, tt := range []struct {
		name, content, want string
		code                Code
		all                 []object
	}{
		{"missing", "a b\nhello world\n", "edit 2 of 2: old_string was not found in f as the edits before it leave it. The nearest passages", "", []object{edit("a", "c"), edit("hello wurld", "x")}},
		{"gone", "a\n", "edit 2 of 2: old_string was not found", "", []object{edit("a", "b"), edit("a", "c")}},
		{"first missing", "a\n", "edit 1 of 2: old_string was not found in f. Nothing", "", []object{edit("zzzz", "b"), edit("a", "c")}},
		{"ambiguous", "a\na\n", "edit 2 of 3: old_string is not unique", "", []object{edit("a", "b", "line", 1), edit("\n", "x"), edit("b", "c")}},
		{"creates what is there", "a\n", "edit 2 of 2: f exists", "", []object{edit("a", "b"), edit("", "c")}},
		{"undone", "a\n", "the edits undo each other", "", []object{edit("a", "b"), edit("b", "a")}},
		{"same", "a\n", "edit 2 of 2: old_string and new_string are the same", CodeInvalidInput, []object{edit("a", "b"), edit("b", "b")}},
		{"two choices", "a\n", "edit 1 of 2: give one of", CodeInvalidInput, []object{edit("a", "b", "line", 1, "occurrence", 1), edit("b", "c")}},
		{"binary", "a\x00", "binary data", "", []object{edit("a", "b"), edit("b", "c")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env, dir := fileEnv(t)
			writeFile(t, dir+"/f", tt.content)
			r, err := callTool(t, env, MultiEdit{}, edits("f", tt.all...))
			if tt.code != "" {
				expectCode(t, err, tt.code)
				r = &Result{IsError: true, Output: fmt.Sprint(err)}
			}
			if r == nil || !r.IsError || !strings.Contains(r.Output+r.Quote, tt.want) {
				t.Errorf("%+v, %v; want %q", r, err, tt.want)
			}
			if got := contentOf(t, dir+"/f"); got != tt.content {
				t.Errorf("content %q", got)
			}
		})
	}
	env, dir := fileEnv(t)
	r, err := callTool(t, env, MultiEdit{}, edits("no/file", edit("a", "b"), edit("b", "c")))
	if err != nil || !r.IsError || !strings.Contains(r.Output, "edit 1 of 2: ") {
		t.Errorf("%+v, %v", r, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// What an approver was shown is what is written, or nothing is.
func TestMultiEditAfterApproval(t *testing.T) {
	env, dir := fileEnv(t)
	writeFile(t, dir+"/f", "one\ntwo\n")
	input, err := json.Marshal(edits("f", edit("one", "1"), edit("two", "2")))
	if err != nil {
		t.Fatal(err)
	}
	prep, err := MultiEdit{}.Prepare(t.Context(), env, input)
	if err != nil || strings.Count(prep.Diff, "\n-") != 2 {
		t.Fatalf("%+v, %v", prep, err)
	}
	writeFile(t, dir+"/f", "one\ntwo\nthree\n")
	_, err = MultiEdit{}.Run(t.Context(), env, input, prep)
	expectCode(t, err, CodeStale)
	writeFile(t, dir+"/f", "one\ntwo\n")
	r, err := MultiEdit{}.Run(t.Context(), env, input, prep)
	if err != nil || r.IsError || r.Metadata["diff"] != prep.Diff || contentOf(t, dir+"/f") != "1\n2\n" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestEditChooses(t *testing.T) {
	for _, tt := range []struct {
		name, content, want, says string
		e                         object
	}{
		{"second", "a\nb\na\na\n", "a\nb\nX\na\n", "at line 3", edit("a", "X", "occurrence", 2)},
		{"near", "a\nb\na\nb\nb\na\n", "a\nb\na\nb\nb\nX\n", "at line 6", edit("a", "X", "line", 5)},
		{"within", "a\nb\nc\na\nb\nc\n", "X\na\nb\nc\n", "at line 1", edit("a\nb\nc\n", "X\n", "line", 3)},
		{"the only one", "b\na\n", "b\nX\n", "at line 2", edit("a", "X", "line", 90)},
		{"tie", "a\nb\na\n", "", "two places are equally near to line 2; they begin in lines 1, 3", edit("a", "X", "line", 2)},
		{"too many", "a\nb\na\n", "", "occurrence 3 was asked for, and there are 2, beginning in lines 1, 3", edit("a", "X", "occurrence", 3)},
		{"one alone", "b\na\n", "", "occurrence 2 was asked for, and there is one, in line 2", edit("a", "X", "occurrence", 2)},
		{"tolerant", "  a\n  b\nc\n  a\n  b\n", "  a\n  b\nc\n  x\n  y\n", "line_trimmed", edit("a\nb\n", "x\ny\n", "occurrence", 2)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env, dir := fileEnv(t)
			writeFile(t, dir+"/f", tt.content)
			tt.e["file_path"] = "f"
			r, err := callTool(t, env, Edit{}, tt.e)
			if tt.want == "" {
				tt.want = tt.content
			}
			if err != nil || r.IsError != (tt.want == tt.content) || !strings.Contains(r.Output, tt.says) || contentOf(t, dir+"/f") != tt.want {
				t.Errorf("%+v, %v; content %q", r, err, contentOf(t, dir+"/f"))
			}
		})
	}
}

// TestMultieditExpects: an edit that would replace more or fewer places than it expects changes nothing, nor do those before it.
func TestMultieditExpects(t *testing.T) {
	t.Parallel()
	for expected, done := range map[int]bool{1: false, 2: true, 3: false} {
		env, dir := fileEnv(t)
		writeFile(t, dir+"/f", "a\nx\nx\n")
		r, err := callTool(t, env, MultiEdit{}, object{"file_path": "f", "edits": []any{
			object{"old_string": "a", "new_string": "b"}, object{"old_string": "x", "new_string": "y", "expected_replacements": expected},
		}})
		want := "a\nx\nx\n"
		if done {
			want = "b\ny\ny\n"
		}
		if got := contentOf(t, dir+"/f"); err != nil || r.IsError == done || got != want {
			t.Errorf("%d: %q, %+v, %v", expected, got, r, err)
		}
	}
}
