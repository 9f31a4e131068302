package tool

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

const aPatchText = "*** Begin Patch\n*** Update File: a\n*** Move to: d/b\n*** Delete File: a\n*** Add File: c\n+x\n*** End Patch"

// A patch is taken by each of its names, and as a text in the place of the input.
func TestPatchSpellings(t *testing.T) {
	r := NewRegistry()
	text, err := json.Marshal(aPatchText)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"patch":` + string(text) + `}`
	for in, used := range map[string]string{
		`{"patch":` + string(text) + `}`: "", `{"patchText":` + string(text) + `}`: "patchText", `{"patch_text":` + string(text) + `}`: "patch_text",
		`{"input":` + string(text) + `}`: "input", string(text): "text",
	} {
		inv, err := r.Parse("apply_patch", json.RawMessage(in))
		if err != nil || string(inv.JSON) != want || strings.Join(inv.Aliases, "") != used {
			t.Errorf("%.20s: %v, %+v", in, err, inv)
		}
	}
	if _, err := r.Parse("apply_patch", json.RawMessage(`{"patch":"x","input":"x"}`)); err == nil {
		t.Error("two spellings at once were taken")
	}
	if _, err := r.Parse("edit", text); err == nil {
		t.Error("a text was taken as the input of edit")
	}
}

// Every file that a patch writes, removes or moves is asked for, once.
func TestPatchAccess(t *testing.T) {
	inv, err := NewRegistry().Parse("apply_patch", json.RawMessage(`{"patch":"`+strings.ReplaceAll(aPatchText, "\n", `\n`)+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	var want Access
	for _, p := range []string{"a", "d/b", "c"} {
		want.Requests = append(want.Requests, Request{Permission: "edit", Pattern: p, Path: p, Write: true})
	}
	want.Requests = append(want.Requests, Request{Permission: "read", Pattern: "a", Path: "a"})
	want.Prepare, want.Title = true, "a and 2 more"
	if got := inv.Input.Access(nil); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if shown, whole := inv.Input.(Visible).Shown(); shown["path"] != "a, d/b, c" || whole {
		t.Errorf("shown %v, %v", shown, whole)
	}
	d, _ := NewRegistry().Get("apply_patch")
	if p := d.Permissions(); len(p) != 1 || p[0] != PermissionEdit {
		t.Errorf("permissions %v", p)
	}
}

func TestPatchRefused(t *testing.T) {
	_, err := NewRegistry().Parse("apply_patch", json.RawMessage(`"*** Begin Patch\n*** Update File: a\n@@\n-x\ny\n*** End Patch"`))
	e, ok := errors.AsType[*client.Error](err)
	if !ok || e.Code != client.CodeInvalidInput || len(e.Violations) != 1 || e.Violations[0].Path != "/patch" || !strings.Contains(e.Violations[0].Message, "line 5 of the patch") {
		t.Errorf("got %+v", err)
	}
}
