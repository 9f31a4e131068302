package cli

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/internal/testrig"
)

// openapi is a directory for what generators make of api/openapi.json, with the
// document and the clients of tools/openapi in it.
type openapi struct {
	t     *testing.T
	dir   string
	tools string
}

// newOpenapi skips the test where the tool is not here.
func newOpenapi(t *testing.T, tool string) *openapi {
	t.Helper()
	tools, err := filepath.Abs("../../bin/openapi")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(tools, tool)); err != nil {
		testrig.Skipf(t, "openapi", "%v: run scripts/install-openapi first", err)
	}
	o := &openapi{t: t, dir: t.TempDir(), tools: tools}
	for _, name := range []string{"api/openapi.json", "tools/openapi/client.ts", "tools/openapi/main.go", "tools/openapi/go.mod", "tools/openapi/go.sum"} {
		text, err := os.ReadFile("../../" + name)
		if err == nil {
			err = os.WriteFile(filepath.Join(o.dir, filepath.Base(name)), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// run runs a program in the directory and gives what it printed.
func (o *openapi) run(program string, args ...string) string {
	o.t.Helper()
	if strings.Contains(program, "/") {
		program = filepath.Join(o.tools, program)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = o.dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true", "NO_COLOR=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		o.t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestOpenAPILint: the linter has neither an error nor a warning, by the rules that
// it recommends.
func TestOpenAPILint(t *testing.T) {
	o := newOpenapi(t, "node_modules/.bin/redocly")
	if out := o.run("node_modules/.bin/redocly", "lint", "openapi.json"); strings.Contains(strings.ToLower(out), "warning") {
		t.Error(out)
	}
}

// TestOpenAPITypeScript: types for TypeScript can be made, and a client compiles
// with them.
func TestOpenAPITypeScript(t *testing.T) {
	o := newOpenapi(t, "node_modules/.bin/openapi-typescript")
	o.run("node_modules/.bin/openapi-typescript", "openapi.json", "-o", "api.d.ts")
	o.run("node_modules/.bin/tsc", "--noEmit", "--strict", "--target", "es2022", "--module", "nodenext", "client.ts")
}

// TestOpenAPIGo: a client of nothing but generated Go makes a session and a call
// with a real daemon.
func TestOpenAPIGo(t *testing.T) {
	if why != "" {
		t.Skip(why)
	}
	o := newOpenapi(t, "oapi-codegen")
	o.run("./oapi-codegen", "-generate", "types,client", "-package", "main", "-o", "api.gen.go", "openapi.json")
	o.run("go", "build", "-o", "client", ".")
	r, err := openRig()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.close(t) })
	if err := errors.Join(os.Chmod(r.dir, 0o711), r.start(nil)); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(filepath.Join(o.dir, "client"), r.socket).CombinedOutput()
	const want = "session ready 134217728 600000\ncall completed generated\n\nproblem not_found\nsession ended\n"
	if err != nil || string(out) != want {
		t.Errorf("the generated client: %v\n%s\nwant\n%s", err, out, want)
	}
}
