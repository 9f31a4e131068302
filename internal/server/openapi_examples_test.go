package server

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/toold/toold/api"
)

// exampleBodies are the bodies of the examples in the document.
var exampleBodies = map[string]string{
	"CreateSession":  `{"name": "review", "worktree": {"source": "/home/me/project", "mode": "overlay"}, "limits": {"memory": 2147483648}, "ttl": 28800000, "labels": {"job": "42"}}`,
	"PatchSession":   `{"labels": {"job": "43"}, "ttl": 7200000}`,
	"Apply":          `{"paths": ["cmd"], "exclude": ["*.log"], "dry_run": true}`,
	"Discard":        `{"paths": ["build"]}`,
	"Checkpoint":     `{"name": "before-refactoring"}`,
	"Restore":        `{"checkpoint": "before-refactoring"}`,
	"Fork":           `{"at": "before-refactoring", "name": "other-way"}`,
	"CreateCall":     `{"tool": "bash", "input": {"command": "go test ./..."}, "key": "build-1", "timeout_ms": 90000}`,
	"MCP":            `{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}`,
	"AnswerApproval": `{"answer": "reject", "message": "not on a Friday"}`,
	"ExplainPolicy":  `{"tool": "bash", "input": {"command": "git push"}, "session": "review"}`,
	"ReplayPolicy":   `{"rules": "[permission]\nbash = \"ask\"\n", "since": "24h"}`,
	"PullImage":      `{"ref": "docker.io/library/golang:1.26"}`,
	"GC":             `{"dry_run": true}`,
	"Drain":          `{}`,
}

// exampleIDs stand in the paths of the examples.
var exampleIDs = map[string]string{
	"session": "review", "checkpoint": "before-refactoring", "cache": "go", "call": "call_0123456789abcdef",
	"saved approval": "apr_0123456789abcdef.1", "image": "golang:1.26", "approval": "apr_0123456789abcdef",
}

// exampleFiles are the bodies that are no JSON.
var exampleFiles = map[string]string{"PutFile": "main.go", "ImportImage": "image.tar"}

// sample is how a route is asked with curl.
func sample(rt *route) string {
	path := rt.pattern
	for _, kind := range rt.pathIDs() {
		path = strings.Replace(path, "{"+kind.name()+"}", exampleIDs[kind.what], 1)
	}
	for _, p := range rt.query {
		if p.required {
			path += "?" + p.name + "=main.go"
		}
	}
	var b strings.Builder
	b.WriteString("curl --unix-socket /run/toold/toold.sock ")
	if _, stream := rt.response.(eventsBody); stream {
		b.WriteString("--no-buffer ")
	}
	if rt.method != "GET" {
		b.WriteString("--request " + rt.method + " ")
	}
	if body := exampleBodies[rt.op]; body != "" {
		fmt.Fprintf(&b, "--header 'Content-Type: application/json' --data '%s' ", body)
	}
	if file := exampleFiles[rt.op]; file != "" {
		fmt.Fprintf(&b, "--header 'Content-Type: application/octet-stream' --data-binary @%s ", file)
	}
	b.WriteString("http://toold" + path)
	return b.String()
}

// TestOpenAPIExamples: each operation is described and has an example: of a request with a body one
// that the body's type has, and of a path ids that the route takes.
func TestOpenAPIExamples(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]struct {
			Description string
			Samples     []struct{ Source string } `json:"x-codeSamples"`
			RequestBody *struct {
				Content map[string]struct{ Example any }
			}
		}
	}
	if err := json.Unmarshal(api.OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	used := 0
	for i := range routes {
		rt := &routes[i]
		op := doc.Paths[rt.pattern][strings.ToLower(rt.method)]
		if len(strings.Fields(op.Description)) < 3 {
			t.Errorf("%s has the description %q", rt.op, op.Description)
		}
		if len(op.Samples) != 1 || strings.ContainsAny(op.Samples[0].Source, "{}") != (exampleBodies[rt.op] != "") {
			t.Errorf("%s has the examples %q", rt.op, op.Samples)
		}
		for _, kind := range rt.pathIDs() {
			if why := kind.wrong(exampleIDs[kind.what]); why != "" {
				t.Errorf("%s: the example of a %s %s", rt.op, kind.what, why)
			}
		}
		body, has := exampleBodies[rt.op]
		switch {
		case rt.request == nil && !has:
			continue
		case op.RequestBody == nil, !has && exampleFiles[rt.op] == "":
			t.Errorf("%s has no example of its body", rt.op)
			continue
		}
		used++
		if typ := rt.bodyType(); typ != nil {
			dec := json.NewDecoder(strings.NewReader(body))
			dec.DisallowUnknownFields()
			if err := dec.Decode(reflect.New(typ).Interface()); err != nil || op.RequestBody.Content["application/json"].Example == nil {
				t.Errorf("%s: the example %s: %v", rt.op, body, err)
			}
		}
	}
	if want := len(exampleBodies) + len(exampleFiles); used != want {
		t.Errorf("%d examples are of no route", want-used)
	}
}
