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
		}, Title: "d", Command: "cat"}},
		{"read", `{"filePath":"a/b"}`, Access{Requests: []Request{{Permission: "read", Pattern: "a/b", Path: "a/b"}}, Prepare: true}},
		{"write", `{"file_path":"a","content":""}`, Access{Requests: []Request{{Permission: "edit", Pattern: "a", Path: "a", Write: true}}, Prepare: true}},
		{"edit", `{"file_path":"/a","old_string":"x","new_string":"y"}`, Access{Requests: []Request{{Permission: "edit", Pattern: "/a", Path: "/a", Write: true}, {Permission: "read", Pattern: "/a", Path: "/a"}}, Prepare: true}},
		{"glob", `{"pattern":"*.go"}`, Access{Requests: []Request{{Permission: "glob", Pattern: "*.go", Search: true}}, Title: "*.go"}},
		{"glob", `{"pattern":"*.go","path":"x"}`, Access{Requests: []Request{{Permission: "glob", Pattern: "*.go", Path: "x", Search: true}}, Prepare: true, Title: "*.go"}},
		{"grep", `{"pattern":"x.y","path":""}`, Access{Requests: []Request{{Permission: "grep", Pattern: "x.y", Search: true}}, Title: "x.y"}},
		{"grep", `{"pattern":"x","path":"/etc"}`, Access{Requests: []Request{{Permission: "grep", Pattern: "x", Path: "/etc", Search: true}}, Prepare: true, Title: "x"}},
		{"list", `{}`, Access{Requests: []Request{{Permission: "list", Pattern: ".", Path: "."}}, Prepare: true}},
		{"list", `{"path":"d"}`, Access{Requests: []Request{{Permission: "list", Pattern: "d", Path: "d"}}, Prepare: true}},
		{"file_put", `{"from":"/o/1","path":"d"}`, Access{Requests: []Request{{Permission: "edit", Pattern: "d", Path: "d", Write: true}}, Prepare: true}},
		{"file_get", `{"path":"d"}`, Access{Requests: []Request{{Permission: "read", Pattern: "d", Path: "d"}}, Prepare: true}},
	} {
		inv, err := r.ParseHidden(tc.tool, json.RawMessage(tc.in))
		if err != nil {
			t.Fatal(err)
		}
		if got := inv.Input.Access(nil); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s %s: got %+v, want %+v", tc.tool, tc.in, got, tc.want)
		}
	}
	d, _ := r.Get("read")
	if got := d.decode(nil).Access(nil); got.Requests[0].Path != "" || !got.Prepare {
		t.Errorf("of an input without fields: %+v", got)
	}
}

// TestInputs: what inputs say of themselves, beside what they touch.
func TestInputs(t *testing.T) {
	r := NewRegistry()
	for _, tc := range []struct {
		tool, in string
		workdir  string // "-": paths begin at the worktree
		timeout  int64  // -1: there is none to ask for
		shown    map[string]string
		whole    bool
	}{
		{"bash", `{"command":"ls"}`, "", 0, map[string]string{"command": "ls", "stdin": "", "description": "", "workdir": ""}, true},
		{
			"bash", `{"command":"cat","stdin":"x","workdir":"d","timeout":5,"description":"say"}`, "d", 5,
			map[string]string{"command": "cat", "stdin": "x", "description": "say", "workdir": "d"},
			true,
		},
		{"read", `{"file_path":"a"}`, "-", -1, map[string]string{"path": "a"}, false},
		{"glob", `{"pattern":"/x/*.go","path":"b"}`, "-", -1, map[string]string{"path": "b"}, false},
		{"list", `{}`, "-", -1, map[string]string{"path": ""}, false},
		{"file_put", `{"from":"/o/1","path":"d"}`, "-", -1, map[string]string{"path": "d"}, false},
	} {
		inv, err := r.ParseHidden(tc.tool, json.RawMessage(tc.in))
		if err != nil {
			t.Fatal(err)
		}
		workdir, timeout := "-", int64(-1)
		if in, ok := inv.Input.(Placed); ok {
			workdir = in.Workdir()
		}
		if in, ok := inv.Input.(Timed); ok {
			timeout = in.Timeout()
		}
		shown, whole := inv.Input.(Visible).Shown()
		if workdir != tc.workdir || timeout != tc.timeout || whole != tc.whole || !reflect.DeepEqual(shown, tc.shown) {
			t.Errorf("%s %s: in %q for %d ms, %v %v", tc.tool, tc.in, workdir, timeout, shown, whole)
		}
	}
	if inv := r.Malformed("bash", json.RawMessage(`{`)); string(inv.Near()) != string(inv.JSON) {
		t.Errorf("of a malformed input: %+v", inv)
	}
}

// TestNear: loops that an earlier version has recorded are found by these very bytes.
func TestNear(t *testing.T) {
	r := NewRegistry()
	for _, tc := range []struct{ tool, in, json, near string }{
		{
			"bash", `{"command":"echo  'hello' # so","description":"d","timeout":"5"}`,
			`{"command":"echo  'hello' # so","description":"d","timeout":5}`, `["echo hello","",""]`,
		},
		{
			"bash", `{"command":"cat \u003c x","stdin":"a&b","workdir":"d"}`,
			`{"command":"cat \u003c x","stdin":"a\u0026b","workdir":"d"}`, `["cat \u003cx","d","a\u0026b"]`,
		},
		{"read", `{"filePath":"a","limit":2.0}`, `{"file_path":"a","limit":2}`, `{"file_path":"a","limit":2}`},
	} {
		inv, err := r.Parse(tc.tool, json.RawMessage(tc.in))
		if err != nil {
			t.Fatal(err)
		}
		if string(inv.JSON) != tc.json || string(inv.Near()) != tc.near {
			t.Errorf("%s: %s, near %s", tc.in, inv.JSON, inv.Near())
		}
	}
}
