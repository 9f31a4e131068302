package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/toold/toold/api"
	"github.com/toold/toold/internal/testrig"
)

// specProxy stands between the tests' clients and a daemon and checks every
// answer against the OpenAPI document: its status, its type, and its body's
// schema, with no property that the document does not have.
func specProxy(t *testing.T, d *daemon) (socket string) {
	t.Helper()
	spec := loadSpec(t)
	socket = filepath.Join(filepath.Dir(d.socket), "p")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	proxy := testrig.Proxy(t, d.socket)
	proxy.ModifyResponse = func(r *http.Response) error {
		if err := spec.check(r); err != nil {
			t.Errorf("%s %s: answer %d does not fit the spec: %v", r.Request.Method, r.Request.URL, r.StatusCode, err)
		}
		return nil
	}
	server := &http.Server{Handler: proxy}
	done := make(chan struct{})
	go func() { _ = server.Serve(ln); close(done) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return socket
}

// spec is the OpenAPI document, compiled.
type spec struct {
	doc      map[string]any
	compiler *jsonschema.Compiler
}

func loadSpec(t *testing.T) *spec {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(api.OpenAPI))
	if err != nil {
		t.Fatal(err)
	}
	s := &spec{doc: doc.(map[string]any), compiler: jsonschema.NewCompiler()}
	forbidMore(s.doc["components"].(map[string]any)["schemas"])
	if err := s.compiler.AddResource("api.json", doc); err != nil {
		t.Fatal(err)
	}
	s.compiler.DefaultDraft(jsonschema.Draft2020)
	return s
}

// forbidMore makes every object schema closed, which the document itself leaves
// open in answers so that clients survive additions.
func forbidMore(v any) {
	m, ok := v.(map[string]any)
	if !ok {
		return
	}
	if _, has := m["additionalProperties"]; !has && m["type"] == "object" && m["properties"] != nil {
		m["additionalProperties"] = false
	}
	for _, below := range m {
		forbidMore(below)
	}
}

// check says how an answer breaks the document.
func (s *spec) check(r *http.Response) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil && r.StatusCode != http.StatusNoContent {
		return fmt.Errorf("no content type: %w", err)
	}
	if kind == "text/event-stream" || kind == "application/octet-stream" {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if r.StatusCode == http.StatusNoContent || r.Request.Method == http.MethodHead {
		return nil
	}
	pointer, err := s.schemaOf(r, kind)
	if err != nil || !strings.HasSuffix(kind, "json") {
		return err
	}
	schema, err := s.compiler.Compile("api.json#" + pointer)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	if err := schema.Validate(v); err != nil {
		return fmt.Errorf("%w\n%s", err, body)
	}
	return nil
}

// schemaOf finds the schema of an answer, as a JSON pointer into the document.
func (s *spec) schemaOf(r *http.Response, kind string) (string, error) {
	if kind == "application/problem+json" && r.StatusCode >= 400 {
		return "/components/schemas/Problem", nil
	}
	for pattern, item := range s.doc["paths"].(map[string]any) {
		op, ok := item.(map[string]any)[strings.ToLower(r.Request.Method)].(map[string]any)
		if !ok || !fits(pattern, r.Request.URL.Path) {
			continue
		}
		pointer := []string{"paths", pattern, strings.ToLower(r.Request.Method), "responses", fmt.Sprint(r.StatusCode)}
		resp, ok := op["responses"].(map[string]any)[pointer[4]].(map[string]any)
		if !ok {
			return "", fmt.Errorf("status %d is not in the document", r.StatusCode)
		}
		if content, _ := resp["content"].(map[string]any); content[kind] == nil {
			return "", fmt.Errorf("type %q is not in the document", kind)
		}
		var b strings.Builder
		for _, p := range append(pointer, "content", kind, "schema") {
			b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(p))
		}
		return b.String(), nil
	}
	return "", fmt.Errorf("the route is not in the document")
}

func fits(pattern, path string) bool {
	want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if !strings.HasPrefix(want[i], "{") && want[i] != got[i] {
			return false
		}
	}
	return true
}

// TestSpecHasTeeth: the check above does find what is wrong.
func TestSpecHasTeeth(t *testing.T) {
	s := loadSpec(t)
	answer := func(method, path string, status int, kind, body string) error {
		r, _ := http.NewRequest(method, "http://toold"+path, nil)
		return s.check(&http.Response{Request: r, StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(body))})
	}
	const js = "application/json"
	good := `{"status":"ok"}`
	for _, tt := range []struct {
		name, method, path string
		status             int
		kind, body         string
		ok                 bool
	}{
		{"right", "GET", "/v1/health", 200, js, good, true},
		{"more properties", "GET", "/v1/health", 200, js, `{"status":"ok","secret":1}`, false},
		{"wrong type", "GET", "/v1/health", 200, js, `{"status":1}`, false},
		{"missing property", "GET", "/v1/health", 200, js, `{}`, false},
		{"other status", "GET", "/v1/health", 202, js, good, false},
		{"other type", "GET", "/v1/health", 200, "text/plain", good, false},
		{"other route", "GET", "/v1/wealth", 200, js, good, false},
		{"nested", "GET", "/v1/sessions", 200, js, `{"items":[{"id":"ses_1"}]}`, false},
		{"problem", "GET", "/v1/sessions", 404, "application/problem+json", `{"code":"nonsense"}`, false},
	} {
		if err := answer(tt.method, tt.path, tt.status, tt.kind, tt.body); (err == nil) != tt.ok {
			t.Errorf("%s: got %v, want ok=%v", tt.name, err, tt.ok)
		}
	}
	if !json.Valid(api.OpenAPI) {
		t.Error("the document is not JSON")
	}
}
