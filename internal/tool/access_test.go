package tool

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestAccess(t *testing.T) {
	r := NewRegistry()
	for _, tc := range []struct {
		tool, in string
		want     Access
	}{
		{"bash", `{"command":"ls -l"}`, Access{Requests: []Request{{"bash", "ls -l", "", false}}}},
		{"read", `{"filePath":"a/b"}`, Access{[]Request{{"read", "a/b", "a/b", false}}, true}},
		{"write", `{"file_path":"a","content":""}`, Access{[]Request{{"edit", "a", "a", true}}, true}},
		{"edit", `{"file_path":"/a","old_string":"x","new_string":"y"}`, Access{[]Request{{"edit", "/a", "/a", true}}, true}},
		{"glob", `{"pattern":"*.go"}`, Access{[]Request{{"glob", "*.go", "", false}}, false}},
		{"glob", `{"pattern":"*.go","path":"x"}`, Access{[]Request{{"glob", "*.go", "x", false}}, true}},
		{"grep", `{"pattern":"x.y","path":""}`, Access{[]Request{{"grep", "x.y", "", false}}, false}},
		{"grep", `{"pattern":"x","path":"/etc"}`, Access{[]Request{{"grep", "x", "/etc", false}}, true}},
		{"list", `{}`, Access{[]Request{{"list", ".", ".", false}}, true}},
		{"list", `{"path":"d"}`, Access{[]Request{{"list", "d", "d", false}}, true}},
		{"file_put", `{"from":"/o/1","path":"d"}`, Access{[]Request{{"edit", "d", "d", true}}, true}},
		{"file_get", `{"path":"d"}`, Access{[]Request{{"read", "d", "d", false}}, true}},
	} {
		inv, err := r.Parse(tc.tool, json.RawMessage(tc.in))
		if err != nil {
			t.Fatal(err)
		}
		if got := inv.Tool.Access(inv.Input); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s %s: got %+v, want %+v", tc.tool, tc.in, got, tc.want)
		}
	}
	d, _ := r.Get("read")
	if got := d.Access(json.RawMessage(`nonsense`)); got.Requests[0].Path != "" || !got.Prepare {
		t.Errorf("of an input that was not parsed: %+v", got)
	}
}
