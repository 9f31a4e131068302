package agents

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/shipped"
	"github.com/toold/toold/internal/testrig"
)

// toolCall is a line of testdata/calls.jsonl: a call that is made of a tool of OpenCode's
// and of the one of the same name here. "{tree}" in its input is the path of the tree.
type toolCall struct {
	ID    string `json:"id"`
	Tool  string `json:"tool"`
	Input in     `json:"input"`
	// GoesOn has the tree as the call above left it. Else it is as newTree makes it.
	GoesOn bool `json:"goes_on"`
}

// outcome is what a call came to.
type outcome struct {
	text    string            // for the model
	failed  bool              // the tool says that it is an error
	exit    string            // how the command of bash ended
	next    int               // the line or entry to go on with; 0 at the end
	files   map[string]string // of the tree: kind and content by path
	attachs []string          // the kinds of what is attached
}

// atLeast is how many calls are compared.
const atLeast = 150

// TestDiffer makes the same calls of OpenCode's own tools and of toold's, in equal trees.
// Each difference is a line of testdata/differences.txt, and each line is a difference.
func TestDiffer(t *testing.T) {
	program := installed(t, "opencode-linux-*/bin/opencode")
	d := startDaemon(t)
	calls := readCalls(t)
	if len(calls) < atLeast {
		t.Errorf("%d calls, want %d", len(calls), atLeast)
	}
	theirs, ours := make(map[string]outcome), make(map[string]outcome)
	var patches, others []toolCall // some models are offered apply_patch, and neither edit nor write
	for _, c := range calls {
		if c.Tool == "apply_patch" {
			patches = append(patches, c)
		} else {
			others = append(others, c)
		}
	}
	var all sync.WaitGroup
	var mu sync.Mutex // guards theirs
	for model, some := range map[string][]toolCall{"m": others, "gpt-5": patches} {
		all.Go(func() {
			got := byOpenCode(t, program, model, some)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(theirs, got)
		})
	}
	all.Go(func() { ours = d.byToold(calls) })
	all.Wait()
	if t.Failed() {
		return
	}
	compare(t, calls, theirs, ours)
}

func readCalls(t *testing.T) (calls []toolCall) {
	t.Helper()
	b, err := os.ReadFile("testdata/calls.jsonl")
	testrig.Must(t, err)
	seen := make(map[string]bool)
	for line := range strings.Lines(string(b)) {
		var c toolCall
		dec := json.NewDecoder(strings.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&c); err != nil || c.ID == "" || c.Tool == "" || seen[c.ID] {
			t.Fatalf("calls.jsonl: %v: not a call with an id of its own: %s", err, line)
		}
		seen[c.ID] = true
		calls = append(calls, c)
	}
	return calls
}

// most is how many calls are made in one answer of the model.
const most = 20

// looks reports whether the call changes nothing, so that it can be made beside others.
func (c toolCall) looks() bool { return slices.Contains([]string{"read", "grep", "glob"}, c.Tool) }

// prepare makes the tree that the call is to find.
func (c toolCall) prepare(t *testing.T, dir string) {
	if !c.GoesOn {
		newTree(t, dir)
	}
}

// in gives the input for a tree at this path.
func (c toolCall) in(t *testing.T, dir string) (input in) {
	b, err := json.Marshal(c.Input)
	if err == nil {
		err = json.Unmarshal(bytes.ReplaceAll(b, []byte("{tree}"), []byte(dir)), &input)
	}
	if err != nil {
		t.Error(err)
	}
	return input
}

// byOpenCode has a scripted model make the calls of OpenCode's own tools.
func byOpenCode(t *testing.T, program, named string, calls []toolCall) map[string]outcome {
	home, dir := t.TempDir(), t.TempDir()
	got, ids := make(map[string]outcome), make(map[string]string)
	var steps []shipped.Step
	for i, c := range calls {
		s := shipped.Step{Tool: c.Tool, Input: c.in(t, dir), Before: func() { c.prepare(t, dir) }, Got: func(result string) {
			got[c.ID] = outcome{text: strings.ReplaceAll(result, dir, "{tree}"), files: filesOf(t, dir)}
		}}
		if last := len(steps) - 1; i > 0 && c.looks() && calls[i-1].looks() && len(steps[last].Beside) < most-1 {
			steps[last].Beside = append(steps[last].Beside, s)
			ids[shipped.CallID(100*(last+1)+len(steps[last].Beside))] = c.ID
			continue
		}
		steps = append(steps, s)
		ids[shipped.CallID(100*len(steps))] = c.ID
	}
	m := newModel(t, func(tool string) (string, string) { return tool, "" }, steps)
	opencodeConfig(t, home, m.URL, named, `"permission": {"*": "allow"}`)
	cmd := opencode(t, program, home, dir, "run", "--format", "json", "--model", "scripted/"+named, "Make the calls.")
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%s: %v\n%s", cmd, err, out)
	}
	m.finished()
	for line := range strings.Lines(string(out)) {
		said(t, line, ids, got)
	}
	return got
}

// said takes from one event of OpenCode how a call ended, as far as its text does not say it.
func said(t *testing.T, event string, ids map[string]string, got map[string]outcome) {
	var e struct {
		Part struct {
			CallID string
			State  struct {
				Status   string
				Metadata struct {
					Exit *int
				}
				Attachments []struct{ MIME string }
			}
		}
	}
	if json.Unmarshal([]byte(event), &e) != nil {
		return // of another form, and not about a call
	}
	id, state := ids[e.Part.CallID], e.Part.State
	if id == "" {
		return
	}
	o := got[id]
	o.failed = state.Status == "error"
	switch {
	case state.Metadata.Exit != nil:
		o.exit = fmt.Sprint(*state.Metadata.Exit)
	case strings.Contains(o.text, "terminated command after exceeding timeout"):
		o.exit = "timeout"
	}
	for _, a := range state.Attachments {
		o.attachs = append(o.attachs, a.MIME)
	}
	got[id] = o
}

// byToold makes the calls in a session.
func (d *daemon) byToold(calls []toolCall) map[string]outcome {
	t := d.t
	dir := worktree(t, nil)
	ctx := t.Context()
	s, err := d.client.CreateSession(ctx, client.SessionCreate{
		Worktree:   client.Worktree{Source: dir},
		Permission: []client.RuleOf{{Permission: "external_directory", Pattern: "*", Action: "deny"}}, // no person is there
	})
	if err != nil {
		t.Error(err)
		return nil
	}
	got := make(map[string]outcome)
	for _, c := range calls {
		c.prepare(t, dir)
		input, err := json.Marshal(c.in(t, s.Worktree.Target))
		if err != nil {
			t.Error(err)
		}
		r, err := d.client.CreateCall(ctx, s.ID, client.CallCreate{Tool: c.Tool, Input: input}, client.CallOptions{})
		if err != nil {
			t.Errorf("%s: %v", c.ID, err)
			return nil
		}
		o := outcome{text: strings.ReplaceAll(r.Output, s.Worktree.Target, "{tree}"), failed: r.IsError, files: filesOf(t, dir)}
		if c.Tool == "bash" { // a command that fails is no failure of the tool
			o.failed, o.exit = r.Error != nil, fmt.Sprint(cmp.Or(r.Metadata["exit_code"], r.Metadata["reason"]))
		}
		if next, ok := r.Metadata["next_offset"].(float64); ok {
			o.next = int(next)
		}
		for _, a := range r.Attachments {
			o.attachs = append(o.attachs, a.MIME)
		}
		got[c.ID] = o
	}
	return got
}

// newTree makes the tree before a call, with times that say which file is newer. Most
// calls have left it as it was.
func newTree(t *testing.T, dir string) {
	if equal(filesOf(t, dir), treeAsMade) {
		return
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if err == nil {
			err = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, name := range slices.Sorted(maps.Keys(treeFiles)) {
		path := filepath.Join(dir, name)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o755)
		}
		if err == nil {
			err = os.WriteFile(path, []byte(treeFiles[name]), 0o644)
		}
		if at = at.Add(time.Minute); err == nil {
			err = os.Chtimes(path, at, at)
		}
	}
	for name, to := range treeLinks {
		if err == nil {
			err = os.Symlink(to, filepath.Join(dir, name))
		}
	}
	for _, name := range treeDirs {
		if err == nil {
			err = os.MkdirAll(filepath.Join(dir, name), 0o755)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// filesOf is what stands in a tree.
func filesOf(t *testing.T, dir string) map[string]string {
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name := strings.TrimPrefix(path, dir+"/")
		switch {
		case e.IsDir():
			files[name] = "directory"
		case e.Type() == fs.ModeSymlink:
			to, err := os.Readlink(path)
			files[name] = "link to " + to
			return err
		default:
			b, err := os.ReadFile(path)
			files[name] = "file " + string(b)
			return err
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return files
}

func opencodeConfig(t *testing.T, home, url, model, more string) {
	testrig.Must(t, os.WriteFile(filepath.Join(home, "opencode.json"), fmt.Appendf(nil, `{
  "model": "scripted/%[2]s", "small_model": "scripted/%[2]s", "autoupdate": false, "share": "disabled",
  "provider": {"scripted": {"npm": "@ai-sdk/openai-compatible", "name": "scripted",
    "options": {"baseURL": "%[1]s/v1", "apiKey": "x"}, "models": {"%[2]s": {"name": "m", "tool_call": true}}}},
  %[3]s
}`, url, model, more), 0o600))
}

// opencode is a run of OpenCode with a home of its own, that asks nothing of the network. Its
// shell is the one that sandboxes have: without SHELL it takes the first bash of PATH, whose name
// is in what bash says.
func opencode(t *testing.T, program, home, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+home, "PWD="+dir, "SHELL=/bin/bash", "OPENCODE_CONFIG="+home+"/opencode.json", "XDG_DATA_HOME="+home+"/data", "XDG_CONFIG_HOME="+home+"/config",
		"XDG_CACHE_HOME="+home+"/cache", "XDG_STATE_HOME="+home+"/state", "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1")
	return cmd
}
