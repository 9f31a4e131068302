package server

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
)

// TestKinds: every kind of error inside has its own code and status, and the answer has
// all that the error says and nothing of what was said around it.
func TestKinds(t *testing.T) {
	answers := map[fault.Kind]struct {
		code   client.Code
		status int
	}{
		fault.Invalid:    {client.CodeInvalidRequest, 400},
		fault.BadPath:    {client.CodeInvalidPath, 400},
		fault.NotFound:   {client.CodeNotFound, 404},
		fault.Forbidden:  {client.CodeForbidden, 403},
		fault.Conflict:   {client.CodeConflict, 409},
		fault.Quota:      {client.CodeQuotaExceeded, 429},
		fault.Overloaded: {client.CodeOverloaded, 503},
		fault.Over:       {client.CodeSessionLost, 410},
		fault.Aborted:    {client.CodeAborted, 409},
		fault.Sandbox:    {client.CodeSandboxFailed, 502},
		fault.Internal:   {client.CodeInternal, 500},

		fault.Denied:        {client.CodeDenied, 403},
		fault.Loop:          {client.CodeDoomLoop, 409},
		fault.Unanswered:    {client.CodeApprovalTimeout, 403},
		fault.StaleApproval: {client.CodeStaleApproval, 409},
		fault.Stale:         {client.CodeStale, 409},
		fault.Input:         {client.CodeInvalidInput, 400},
		fault.NoTool:        {client.CodeUnknownTool, 404},
		fault.NotFile:       {client.CodeNotRegularFile, 400},
	}
	if n := countKinds(t); n != len(answers) {
		t.Errorf("package fault has %d kinds, this test %d", n, len(answers))
	}
	logs := &logBuffer{}
	s := &Server{cfg: Config{Log: newLog(logs)}}
	for kind, a := range answers {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		got := s.problemOf(r, fmt.Errorf("around: %w", kind.Errorf("what %d", 1).Next("do that")))
		want := client.Problem{
			Type: "about:blank", Title: http.StatusText(a.status), Status: a.status,
			Detail: "what 1", Code: a.code, Hint: "do that", IsError: true, Output: "what 1\ndo that",
		}
		if kind != fault.Internal && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", kind, got, want)
		}
		if kind == fault.Internal && (got.Status != a.status || got.Code != a.code || strings.Contains(got.Output, "what 1") || !strings.Contains(logs.String(), "what 1")) {
			t.Errorf("%s: got %+v, want nothing but a reference to the log", kind, got)
		}
	}
}

// countKinds counts the constants of fault.Kind.
func countKinds(t *testing.T) (n int) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "../fault/fault.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(x ast.Node) bool {
		if v, ok := x.(*ast.ValueSpec); ok {
			if typ, ok := v.Type.(*ast.Ident); ok && typ.Name == "Kind" {
				n += len(v.Names)
			}
		}
		return true
	})
	return n
}
