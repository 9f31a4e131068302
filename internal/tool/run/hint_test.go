package run

import (
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/tool/run/root"
)

// Advice about a pattern is about grep's own parameters, not about ripgrep's flags.
func TestGrepAdvice(t *testing.T) { withEngines(t, testGrepAdvice) }

func testGrepAdvice(t *testing.T, env *Env) {
	for pattern, want := range map[string]string{
		`a\nb`:   "Set multiline to search across lines.",
		"a\nb":   "Set multiline to search across lines.",
		"(?<=a)": "There are no look-arounds and no back-references",
		"a(?!b)": "There are no look-arounds and no back-references",
		`(a)\1`:  "There are no look-arounds and no back-references",
		"a(b":    "Set literal to search for plain text.",
	} {
		r, err := call(t, env, Grep{}, object{"pattern": pattern})
		if err != nil || !r.IsError || !strings.Contains(r.Output, want) || strings.Contains(r.Output, "--") || strings.Contains(r.Output, "Consider") {
			t.Errorf("%q: %+v, %v", pattern, r, err)
		}
	}
}

func TestListOfGlobs(t *testing.T) {
	env := searchEnv(t)
	for _, glob := range []string{"*.ts,*.js", "*.ts, *.js", "src/**,lib/**", "*.{a,b},*.c"} {
		_, err := call(t, env, Grep{}, object{"pattern": "x", "include": glob})
		wantCode(t, err, CodeInvalidInput, "write {")
		_, err = call(t, env, Glob{}, object{"pattern": glob})
		wantCode(t, err, CodeInvalidInput, "write {")
	}
	_, err := call(t, env, Glob{}, object{"pattern": "*.ts, *.js"})
	wantCode(t, err, CodeInvalidInput, "write {*.ts,*.js} for several")
	tree(t, env.Worktree, map[string]string{"a,b.ts": "", "x*,": ""})
	for _, glob := range []string{"a,b.ts", "a,*.ts", "*.{ts,js}", "[,*]*"} {
		if text, r := answer(t, env, Glob{}, object{"pattern": glob}); r.IsError {
			t.Errorf("%s: %s", glob, text)
		}
	}
}

func TestMissingInOtherForm(t *testing.T) {
	env, dir := fileEnv(t)
	writeFile(t, dir+"/cafe\u0301/x", "text\n")
	must(t, syscall.Mkfifo(dir+"/main.g", 0o600))
	r := mustFail(t, env, Read{}, object{"file_path": "caf\u00e9/x"})
	if want := `give it as "/w/cafe\u0301"`; !strings.Contains(r.Output, want) {
		t.Errorf("no %q in %s", want, r.Output)
	}
	// What no file tool opens is not proposed.
	if r := mustFail(t, env, Read{}, object{"file_path": "main.go"}); r.Output != "/w/main.go does not exist" {
		t.Errorf("%s", r.Output)
	}
}

func mustFail(t *testing.T, env *Env, tool Tool, in object) *Result {
	t.Helper()
	r, err := callTool(t, env, tool, in)
	if err != nil || !r.IsError {
		t.Fatalf("%s %v: %+v, %v", tool.Name(), in, r, err)
	}
	return r
}

// A write that fails for its place says which places there are.
func TestPlacesThatCanBeWritten(t *testing.T) {
	env := &Env{Worktree: "/w", Home: "/home/agent", Tmp: "/tmp"}
	readOnly := &root.Error{Code: root.Failed, Msg: "cannot create: the file system is read-only", Err: unix.EROFS}
	denied := &root.Error{Code: root.Denied, Msg: "cannot create: permission denied", Err: unix.EACCES}
	for _, tt := range []struct {
		path string
		err  error
		says string
	}{
		{"/etc/x", readOnly, "; files can be written below /w, /home/agent, /tmp"},
		{"/etc/x", denied, "; files can be written below /w, /home/agent, /tmp"},
		{"/w/x", readOnly, "; files can be written below /home/agent, /tmp"},
		{"/w/x", denied, "permission denied"},
		{"/w/x", &root.Error{Code: root.Failed, Msg: "no space", Err: unix.ENOSPC}, "no space"},
	} {
		r, err := changeFailure(env, tt.path, tt.err)
		if err != nil || !strings.HasSuffix(r.Output, tt.says) {
			t.Errorf("%s, %v: %+v, %v", tt.path, tt.err, r, err)
		}
	}
}
