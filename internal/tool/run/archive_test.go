package run

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The rules bind every file of a tree, in and out: what "read" hides is not sent, what
// "edit" does not allow is not written, and both are counted by their rule.
func TestRulesBindTrees(t *testing.T) {
	env, dir := fileEnv(t)
	for name, text := range map[string]string{"a/.env": "s3cret", "a/b/k.pem": "s3cret", "a/b/ok": "open", "ok": "open"} {
		mustWrite(t, filepath.Join(dir, name), text)
	}
	if err := os.Symlink("k.pem", filepath.Join(dir, "a/b/link.pem")); err != nil {
		t.Fatal(err)
	}
	rules := fmt.Sprintf(`{"worktree": %q, "list": [{"patterns": ["*"], "action": "allow", "source": "rule 1"},
		{"patterns": ["*.pem"], "action": "deny", "source": "rule 2"}, {"patterns": ["*.env"], "action": "ask", "source": "rule 3"}]}`, "/w")
	env.Settings = json.RawMessage(`{"read_rules": ` + rules + `}`)
	var out bytes.Buffer
	env.Stream = &out
	r := runTree(t, env, FileGetTree{}, PackJob("/w", 1<<20))
	if r.IsError || r.Metadata["left_out"] != 3 || r.Metadata["files"] != 2 {
		t.Errorf("%+v", r)
	}
	if strings.Contains(out.String(), "s3cret") || strings.Contains(out.String(), "pem") || !strings.Contains(out.String(), "a/b/ok") {
		t.Errorf("the tar is %q", out.String())
	}
	for _, want := range []string{"read denies them (rule 2)", "to read it is asked about (rule 3): /w/a/.env"} {
		if !strings.Contains(r.Output, want) {
			t.Errorf("the answer has no %q: %s", want, r.Output)
		}
	}

	// In: the same names are not written, nor over what is there, nor as links, nor is a
	// file that may be written made of one that may not be read.
	archive := tarOf(t, dir, "--transform=s,^ok$,copy,H", ".")
	into := filepath.Join(dir, "into")
	mustWrite(t, filepath.Join(into, "a/b/k.pem"), "kept")
	env.Settings = json.RawMessage(`{"edit_rules": ` + rules + `}`)
	env.Input = bytes.NewReader(archive)
	r = runTree(t, env, FilePutTree{}, UnpackJob("into", 1<<20))
	if !r.IsError || r.Metadata["left_out"] != 3 || r.Metadata["files"] != 2 {
		t.Errorf("%+v", r)
	}
	if !strings.Contains(r.Output, "edit denies them (rule 2)") || !strings.Contains(r.Output, "to edit it is asked about (rule 3)") {
		t.Error(r.Output)
	}
	if b, _ := os.ReadFile(filepath.Join(into, "a/b/k.pem")); string(b) != "kept" {
		t.Errorf("k.pem is %q", b)
	}
	for _, name := range []string{"a/.env", "a/b/link.pem"} {
		if _, err := os.Lstat(filepath.Join(into, name)); err == nil {
			t.Errorf("%s was written", name)
		}
	}

	src := t.TempDir()
	mustWrite(t, filepath.Join(src, "x.pem"), "ours")
	if err := os.Link(filepath.Join(src, "x.pem"), filepath.Join(src, "y")); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(into, "x.pem"), "s3cret")
	env.Settings = json.RawMessage(`{"read_rules": ` + rules + `, "edit_rules": ` + rules + `}`)
	env.Input = bytes.NewReader(tarOf(t, src, "x.pem", "y"))
	r = runTree(t, env, FilePutTree{}, UnpackJob("into", 1<<20))
	if _, err := os.Lstat(filepath.Join(into, "y")); err == nil || r.Metadata["failed"] != 1 || !strings.Contains(r.Output, "rules for read do not allow that (rule 2)") {
		t.Errorf("a hard link to what may not be read: %v, %s", err, r.Output)
	}
}

// A tree that is too large, an archive that is cut and one that is none end with what was
// done until then.
func TestTreesEndEarly(t *testing.T) {
	env, dir := fileEnv(t)
	mustWrite(t, filepath.Join(dir, "src/a"), strings.Repeat("x", 100_000))
	env.Stream = new(bytes.Buffer)
	r := runTree(t, env, FileGetTree{}, PackJob("src", 50_000))
	if !r.IsError || !strings.Contains(r.Output, "more than 50000 bytes; copy it in parts") {
		t.Errorf("%+v", r)
	}
	whole := tarOf(t, filepath.Join(dir, "src"), ".")
	for name, tc := range map[string]struct {
		in   []byte
		most int64
		want string
	}{
		"cut":       {whole[:40_000], 1 << 20, "the archive is cut"},
		"too large": {whole, 50_000, "more than 50000 bytes"},
		"no tar":    {bytes.Repeat([]byte("no"), 1000), 1 << 20, "not a tar"},
	} {
		env.Input = bytes.NewReader(tc.in)
		r := runTree(t, env, FilePutTree{}, UnpackJob("into", tc.most))
		if !r.IsError || !strings.Contains(r.Output, tc.want) || !strings.Contains(r.Output, "What was written until then stays") || r.Metadata["incomplete"] == nil {
			t.Errorf("%s: %+v", name, r)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "into/*")); len(left) != 0 {
			t.Errorf("%s: there is %q", name, left)
		}
	}
	env.MaxFileSize = 1000
	env.Input = bytes.NewReader(whole)
	if r := runTree(t, env, FilePutTree{}, UnpackJob("into", 1<<20)); !r.IsError || r.Metadata["failed"] != 1 || !strings.Contains(r.Output, "a file may have 1000") {
		t.Errorf("%+v", r)
	}
}

// Where the path is no directory, or none yet.
func TestPrepareTree(t *testing.T) {
	env, dir := fileEnv(t)
	mustWrite(t, filepath.Join(dir, "f"), "x")
	if err := os.Symlink(".", filepath.Join(dir, "l")); err != nil {
		t.Fatal(err)
	}
	for _, tool := range []Tool{FileGetTree{}, FilePutTree{}} {
		if _, err := tool.Prepare(t.Context(), env, treeJob(tool, "f", 1).Input); !strings.Contains(fmt.Sprint(err), "is not a directory but a file") {
			t.Errorf("%s of a file: %v", tool.Name(), err)
		}
		prep, err := tool.Prepare(t.Context(), env, treeJob(tool, "l", 1).Input)
		if err != nil || prep.Targets[0].Path != "/w" || prep.Targets[0].Write != (tool.Name() == "file_put_tree") {
			t.Errorf("%s by a link: %+v, %v", tool.Name(), prep, err)
		}
		prep, err = tool.Prepare(t.Context(), env, treeJob(tool, "none", 1).Input)
		if err != nil || (prep.Result != nil) != (tool.Name() == "file_get_tree") {
			t.Errorf("%s of nothing: %+v, %v", tool.Name(), prep, err)
		}
	}
}

// A session that ends, or a client that goes, ends the unpacking with what was written.
func TestUnpackIsAborted(t *testing.T) {
	env, dir := fileEnv(t)
	mustWrite(t, filepath.Join(dir, "src/a"), "x")
	mustWrite(t, filepath.Join(dir, "src/b"), "y")
	ctx, cancel := context.WithCancel(t.Context())
	env.Input = readerFunc(func(p []byte) (int, error) { cancel(); return 0, context.Canceled })
	r, err := FilePutTree{}.Run(ctx, env, UnpackJob("into", 1<<20).Input, nil)
	if err != nil || !r.IsError || !strings.Contains(r.Output, "ended early") {
		t.Errorf("%+v, %v", r, err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func mustWrite(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// tarOf has GNU tar pack what is in dir.
func tarOf(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	if _, err := exec.LookPath("tar"); err != nil {
		t.Skip(err)
	}
	out, err := exec.Command("tar", append([]string{"-C", dir, "-cf", "-"}, args...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func runTree(t *testing.T, env *Env, tool Tool, job Job) *Result {
	t.Helper()
	r, err := tool.Run(t.Context(), env, job.Input, nil)
	if err != nil {
		t.Fatalf("%s: %v", tool.Name(), err)
	}
	return r
}
