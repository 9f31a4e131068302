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
		{"bash", `{"command":"ls -l"}`, Access{Requests: []Request{{Permission: "bash", Pattern: "ls -l", Save: "ls *"}}}},
		{"read", `{"filePath":"a/b"}`, Access{[]Request{{Permission: "read", Pattern: "a/b", Path: "a/b"}}, true}},
		{"write", `{"file_path":"a","content":""}`, Access{[]Request{{Permission: "edit", Pattern: "a", Path: "a", Write: true}}, true}},
		{"edit", `{"file_path":"/a","old_string":"x","new_string":"y"}`, Access{[]Request{{Permission: "edit", Pattern: "/a", Path: "/a", Write: true}}, true}},
		{"glob", `{"pattern":"*.go"}`, Access{[]Request{{Permission: "glob", Pattern: "*.go"}}, false}},
		{"glob", `{"pattern":"*.go","path":"x"}`, Access{[]Request{{Permission: "glob", Pattern: "*.go", Path: "x"}}, true}},
		{"grep", `{"pattern":"x.y","path":""}`, Access{[]Request{{Permission: "grep", Pattern: "x.y"}}, false}},
		{"grep", `{"pattern":"x","path":"/etc"}`, Access{[]Request{{Permission: "grep", Pattern: "x", Path: "/etc"}}, true}},
		{"list", `{}`, Access{[]Request{{Permission: "list", Pattern: ".", Path: "."}}, true}},
		{"list", `{"path":"d"}`, Access{[]Request{{Permission: "list", Pattern: "d", Path: "d"}}, true}},
		{"file_put", `{"from":"/o/1","path":"d"}`, Access{[]Request{{Permission: "edit", Pattern: "d", Path: "d", Write: true}}, true}},
		{"file_get", `{"path":"d"}`, Access{[]Request{{Permission: "read", Pattern: "d", Path: "d"}}, true}},
	} {
		inv, err := r.ParseHidden(tc.tool, json.RawMessage(tc.in))
		if err != nil {
			t.Fatal(err)
		}
		if got := inv.Tool.Access(inv.Input, nil); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s %s: got %+v, want %+v", tc.tool, tc.in, got, tc.want)
		}
	}
	d, _ := r.Get("read")
	if got := d.Access(json.RawMessage(`nonsense`), nil); got.Requests[0].Path != "" || !got.Prepare {
		t.Errorf("of an input that was not parsed: %+v", got)
	}
}
