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
		{"bash", `{"command":"ls -l"}`, Access{Requests: []Request{{Permission: "bash", Pattern: "ls -l", Save: "ls *"}}, Command: "ls -l"}},
		{"bash", `{"command":"cat","stdin":"x","description":"d"}`, Access{Requests: []Request{
			{Permission: "bash", Pattern: "cat <<STDIN\nx", Opaque: true, Why: "it is given standard input, which it may run"},
			{Permission: "bash", Pattern: "cat"},
		}, Title: "d", Command: "cat", Stdin: true}},
		{"read", `{"filePath":"a/b"}`, Access{Requests: []Request{{Permission: "read", Pattern: "a/b", Path: "a/b"}}, Prepare: true}},
		{"write", `{"file_path":"a","content":""}`, Access{Requests: []Request{{Permission: "edit", Pattern: "a", Path: "a", Write: true}}, Prepare: true}},
		{"edit", `{"file_path":"/a","old_string":"x","new_string":"y"}`, Access{Requests: []Request{{Permission: "edit", Pattern: "/a", Path: "/a", Write: true}}, Prepare: true}},
		{"glob", `{"pattern":"*.go"}`, Access{Requests: []Request{{Permission: "glob", Pattern: "*.go"}}, Title: "*.go"}},
		{"glob", `{"pattern":"*.go","path":"x"}`, Access{Requests: []Request{{Permission: "glob", Pattern: "*.go", Path: "x"}}, Prepare: true, Title: "*.go"}},
		{"grep", `{"pattern":"x.y","path":""}`, Access{Requests: []Request{{Permission: "grep", Pattern: "x.y"}}, Title: "x.y"}},
		{"grep", `{"pattern":"x","path":"/etc"}`, Access{Requests: []Request{{Permission: "grep", Pattern: "x", Path: "/etc"}}, Prepare: true, Title: "x"}},
		{"list", `{}`, Access{Requests: []Request{{Permission: "list", Pattern: ".", Path: "."}}, Prepare: true}},
		{"list", `{"path":"d"}`, Access{Requests: []Request{{Permission: "list", Pattern: "d", Path: "d"}}, Prepare: true}},
		{"file_put", `{"from":"/o/1","path":"d"}`, Access{Requests: []Request{{Permission: "edit", Pattern: "d", Path: "d", Write: true}}, Prepare: true}},
		{"file_get", `{"path":"d"}`, Access{Requests: []Request{{Permission: "read", Pattern: "d", Path: "d"}}, Prepare: true}},
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
