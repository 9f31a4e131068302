package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/testrig"
)

// editTime is for how long the editors edit: EDIT_TIME, or 3 s.
func editTime(t *testing.T) time.Duration {
	t.Helper()
	v := os.Getenv("EDIT_TIME")
	if v == "" {
		return 3 * time.Second
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// editors is a tree with sessions that edit the same files.
type editors struct {
	t        *testing.T
	m        *Manager
	sessions []string
	until    time.Time
}

func newEditors(t *testing.T, sessions int, settings string, files map[string]string) (*editors, string) {
	t.Helper()
	h := newRealHouse(t)
	m := openReal(t, h)
	dir := realTree(t, m, ``, files)
	set := *m.settings.Load()
	set.ToolSettings = map[string][]byte{"edit": []byte(settings)}
	m.Reload(set)
	e := &editors{t: t, m: m}
	for range sessions {
		s, err := m.Create(t.Context(), mounter, client.SessionCreate{
			Worktree: client.Worktree{Source: dir}, Limits: client.Limits{Calls: 16},
		})
		if err != nil {
			t.Fatal(err)
		}
		e.sessions = append(e.sessions, s.ID)
	}
	e.until = time.Now().Add(editTime(t))
	return e, dir
}

func (e *editors) call(i int, tool string, input object) *client.Call {
	raw, err := json.Marshal(input)
	if err != nil {
		panic(err)
	}
	c, err := e.m.calls.Call(e.t.Context(), alice, e.sessions[i%len(e.sessions)], client.CallCreate{Tool: tool, Input: raw}, call.Options{})
	if err != nil {
		e.t.Errorf("%s: %v", tool, err)
		return &client.Call{IsError: true}
	}
	return c
}

// Eight editors count in lines of their own of one file. None is refused, and no
// count is lost: that holds for one session and for two that share the tree, for paths
// with a link in them, and where files have to be read first.
func TestRealParallelEdits(t *testing.T) {
	for _, tt := range []struct {
		name     string
		sessions int
		settings string
		path     func(i int) string
	}{
		{"one session", 1, `{}`, func(int) string { return "sub/f" }},
		{"two sessions", 2, `{}`, func(int) string { return "sub/f" }},
		{"through links", 1, `{}`, func(i int) string { return [...]string{"sub/f", "link/f", "to-f"}[i%3] }},
		{"read before", 1, `{"require_read":true}`, func(int) string { return "sub/f" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const n = 8
			var text strings.Builder
			for i := range n {
				fmt.Fprintf(&text, "counter %d: 0 0 0.\n", i)
			}
			e, dir := newEditors(t, tt.sessions, tt.settings, map[string]string{"sub/f": text.String(), "link": "link:sub", "to-f": "link:sub/f"})
			for i := range e.sessions {
				e.call(i, "read", object{"file_path": "sub/f"})
			}
			var wg sync.WaitGroup
			var counts [n]int
			for i := range n {
				wg.Go(func() {
					line := func(k int) string { return fmt.Sprintf("counter %d: %d %d %d.", i, k, k, k) }
					for time.Now().Before(e.until) && !t.Failed() {
						input := object{"file_path": tt.path(i + counts[i]), "old_string": line(counts[i]), "new_string": line(counts[i] + 1)}
						if i%2 == 1 { // several places of one line, some shorter than before
							input = object{
								"file_path": tt.path(i + counts[i]), "old_string": line(counts[i])[len("counter "):], "new_string": line(counts[i] + 1)[len("counter "):], "replace_all": true,
							}
						}
						c := e.call(i, "edit", input)
						if c.Error != nil || c.IsError {
							t.Errorf("editor %d, edit %d: %+v %q", i, counts[i], c.Error, c.Output)
							return
						}
						counts[i]++
					}
				})
			}
			wg.Wait()
			var want strings.Builder
			total := 0
			for i, k := range counts {
				fmt.Fprintf(&want, "counter %d: %d %d %d.\n", i, k, k, k)
				total += k
			}
			got, err := os.ReadFile(filepath.Join(dir, "sub/f"))
			if err != nil || string(got) != want.String() {
				t.Errorf("%v\n%s\nbut the answers say\n%s", err, got, want.String())
			}
			t.Logf("%d edits", total)
		})
	}
}

// Of editors of one line just one wins each step, and the others are told what is
// there; writes beside them land whole.
func TestRealEditsOfOneLine(t *testing.T) {
	e, dir := newEditors(t, 2, `{}`, map[string]string{"f": "step 0\n"})
	const n, steps = 4, 20
	for step := range steps {
		var wg sync.WaitGroup
		answers := make([]*client.Call, n)
		for i := range n {
			wg.Go(func() {
				answers[i] = e.call(i, "edit", object{"file_path": "f", "old_string": fmt.Sprintf("step %d\n", step), "new_string": fmt.Sprintf("step %d\n", step+1)})
			})
		}
		wg.Wait()
		won := 0
		for _, c := range answers {
			switch {
			case c.Error == nil && !c.IsError:
				won++
			case c.Error != nil || !strings.Contains(c.Output, "old_string was not found in f") || !strings.Contains(c.Output, fmt.Sprintf("+step %d", step+1)):
				t.Errorf("step %d: %+v %q", step, c.Error, c.Output)
			}
		}
		if won != 1 {
			t.Fatalf("step %d: %d won", step, won)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || string(got) != fmt.Sprintf("step %d\n", steps) {
		t.Errorf("%q, %v", got, err)
	}
	whole := map[string]bool{}
	var wg sync.WaitGroup
	for i := range n {
		text := strings.Repeat(fmt.Sprintf("all of writer %d\n", i), 100)
		whole[text] = true
		wg.Go(func() {
			for range 10 {
				if c := e.call(i, "write", object{"file_path": "f", "content": text}); c.Error != nil || c.IsError {
					t.Errorf("write: %+v %q", c.Error, c.Output)
				}
				c := e.call(i, "edit", object{"file_path": "new/" + fmt.Sprint(i%2), "old_string": "", "new_string": "made\n"})
				if c.Error != nil || c.IsError && !strings.Contains(c.Output, "exists") {
					t.Errorf("create: %+v %q", c.Error, c.Output)
				}
			}
		})
	}
	wg.Wait()
	if got, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || !whole[string(got)] {
		t.Errorf("%q, %v", got, err)
	}
}

// The rules that there are without any keep what is in .env where reading it is asked about: no patch moves it
// to where it is not, and there is nothing to read then.
func TestRealDefaultsKeepSecrets(t *testing.T) {
	h := newRealHouse(t)
	m := openReal(t, h)
	const text = "TOKEN=hunter2\n"
	dir := realTree(t, m, ``, map[string]string{".env": text, "sub/.env.local": text, "fine": "fine\n"})
	s, err := m.Create(t.Context(), mounter, client.SessionCreate{Worktree: client.Worktree{Source: dir}, Profile: "ci"})
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{".env", "sub/.env.local"} {
		for _, patch := range []string{
			"*** Begin Patch\n*** Update File: " + from + "\n*** Move to: open.txt\n*** End Patch",
			"diff --git a/" + from + " b/open.txt\nsimilarity index 100%\nrename from " + from + "\nrename to open.txt\n",
			"*** Begin Patch\n*** Update File: " + from + "\n*** Move to: open.txt\n@@\n-TOKEN=hunter2\n+TOKEN=hunter3\n*** End Patch",
		} {
			c := realCall(t, m, s.ID, "apply_patch", object{"patch": patch})
			if c.Error == nil || c.Error.Code != client.CodeDenied || !strings.Contains(c.Error.Message, `read "`+from) {
				t.Errorf("%s: %+v, %q", patch, c.Error, c.Output)
			}
			if got, err := os.ReadFile(filepath.Join(dir, from)); err != nil || string(got) != text {
				t.Errorf("%s: %q, %v", patch, got, err)
			}
			if c := realCall(t, m, s.ID, "read", object{"file_path": "open.txt"}); !c.IsError || strings.Contains(c.Output, "hunter") {
				t.Errorf("what was moved: %+v, %q", c.Error, c.Output)
			}
		}
	}
	// What may be read may be moved.
	if c := realCall(t, m, s.ID, "apply_patch", object{"patch": "*** Begin Patch\n*** Update File: fine\n*** Move to: open.txt\n*** End Patch"}); c.IsError {
		t.Errorf("%+v, %q", c.Error, c.Output)
	}
}

// A session that may edit a file and not read it is shown none of its content, by no
// path; it is told why. An approver is shown what is to be written.
func TestRealEditsShowWhatMayBeRead(t *testing.T) {
	h := newRealHouse(t)
	m := openReal(t, h)
	const text = "# comment\nTOKEN=hunter2\n  NEXT=swordfish\n"
	dir := realTree(t, m, `
[permission]
read = { "*" = "allow", "**/.env" = "ask", "keys/*" = "deny", "keys/asked" = "ask" }
[permission.edit]
"*" = "allow"
"keys/asked" = "ask"
`, map[string]string{".env": text, "link": "link:.env", "keys/k": text, "keys/asked": text, "open": text})
	s, err := m.Create(t.Context(), mounter, client.SessionCreate{Worktree: client.Worktree{Source: dir}, Profile: "ci"})
	if err != nil {
		t.Fatal(err)
	}
	const (
		asks   = `denied: read ".env`
		denies = `reading it is denied by config.toml:3 (read "keys/*")`
	)
	for _, tt := range []struct {
		tool  string
		input object
		fails bool
		want  string // "" = all is shown
	}{
		{"edit", object{"file_path": ".env", "old_string": "TOKEN=hunter", "new_string": "TOKEN=wolf"}, true, asks},
		{"edit", object{"file_path": ".env", "old_string": "nothing like it at all", "new_string": "x"}, true, asks},
		{"edit", object{"file_path": ".env", "old_string": "", "new_string": "x"}, true, ".env exists"},
		{"edit", object{"file_path": ".env", "old_string": "TOKEN=hunter2", "new_string": "x", "expected_replacements": 7}, true, asks}, // how often it is there
		{"edit", object{"file_path": ".env", "old_string": "TOKEN=wolf", "new_string": "x", "expected_replacements": 7}, true, asks},
		{"edit", object{"file_path": "keys/k", "old_string": "TOKEN=hunter2", "new_string": "x", "expected_replacements": 2}, true, `denied: read "keys/k`},
		{"edit", object{"file_path": "link", "old_string": "NEXT=", "new_string": "LAST="}, true, `denied: read "link`},
		{"multiedit", object{"file_path": ".env", "edits": []object{{"old_string": "TOKEN=h", "new_string": "x"}, {"old_string": "impossible", "new_string": "y"}}}, true, asks},
		{"edit", object{"file_path": "keys/k", "old_string": "TOKEN=hunter2\nNEXT=swordfish", "new_string": "x\ny"}, true, `denied: read "keys/k`},
		{"write", object{"file_path": "keys/k", "content": "new\n"}, false, denies},
		{"apply_patch", object{"patch": "*** Begin Patch\n*** Delete File: keys/k\n*** Add File: keys/k\n+guess\n+new\n*** End Patch"}, false, denies},
		{"apply_patch", object{"patch": "*** Begin Patch\n*** Delete File: keys/k\n*** End Patch"}, false, denies},
		{"apply_patch", object{"patch": "*** Begin Patch\n*** Add File: keys/k\n+new\n*** End Patch"}, false, denies},
		{"apply_patch", object{"patch": "*** Begin Patch\n*** Update File: link\n@@\n-TOKEN=hanter2\n+x\n*** End Patch"}, true, `denied: read "link`},
		{"apply_patch", object{"patch": "*** Begin Patch\n*** Update File: .env\n*** Move to: moved.txt\n*** End Patch"}, true, asks},
		{"apply_patch", object{"patch": "diff --git a/.env b/moved.txt\nsimilarity index 100%\nrename from .env\nrename to moved.txt\n"}, true, asks},
		{"apply_patch", object{"patch": "*** Begin Patch\n*** Update File: open\n@@\n-TOKEN=hanter2\n+x\n*** End Patch"}, true, ""},
		{"multiedit", object{"file_path": "open", "edits": []object{{"old_string": "TOKEN=hanter2\nNEXT=sword", "new_string": "x"}}}, true, ""},
		{"edit", object{"file_path": "open", "old_string": "TOKEN=hanter2\nNEXT=sword", "new_string": "x"}, true, ""},
		{"edit", object{"file_path": "open", "old_string": "TOKEN=hunter2\nNEXT=swordfish", "new_string": "x\ny"}, false, ""},
	} {
		c := realCall(t, m, s.ID, tt.tool, tt.input)
		row, err := json.Marshal(c)
		denied := strings.HasPrefix(tt.want, "denied")
		if err != nil || (c.Error != nil) != denied || c.IsError != tt.fails {
			t.Errorf("%s %v: %+v %q", tt.tool, tt.input, c.Error, c.Output)
		}
		row = bytes.ReplaceAll(row, c.Input, nil)
		said := c.Output
		if c.Error != nil {
			said += c.Error.Message
		}
		shown := bytes.Contains(row, []byte("hunter")) || bytes.Contains(row, []byte("swordfish"))
		counted := bytes.Contains(row, []byte("added")) || bytes.Contains(row, []byte("removed")) // lines, that were there or were not
		switch {
		case tt.want != "" && counted:
			t.Errorf("%s %v: lines are counted: %s", tt.tool, tt.input, row)
		case tt.want == "" && !shown:
			t.Errorf("%s %v: not shown: %s", tt.tool, tt.input, row)
		case tt.want != "" && (shown || !strings.Contains(said, tt.want)):
			t.Errorf("%s %v: %s", tt.tool, tt.input, row)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, ".env")); err != nil || string(got) != text {
		t.Errorf("%q, %v", got, err)
	}
	up, err := m.Files.Upload(t.Context(), alice, s.ID, "keys/k", 0, strings.NewReader("hunter2\n"))
	if row, e := json.Marshal(up); err != nil || e != nil || up.Error != nil || bytes.Contains(row, []byte("hunter")) {
		t.Errorf("upload: %v %s", err, row)
	}
	s, err = m.Create(t.Context(), mounter, client.SessionCreate{Worktree: client.Worktree{Source: dir}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := m.calls.Call(t.Context(), alice, s.ID, client.CallCreate{
		Tool: "edit", Input: json.RawMessage(`{"file_path":"keys/asked","old_string":"NEXT","new_string":"LAST"}`), WaitMillis: new(int64),
	}, call.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var a client.Approval
	testrig.Eventually(t, "the edit waits for its approval", func() bool {
		list, err := m.Approvals.Approvals(t.Context(), carol, client.ApprovalQuery{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) > 0 {
			a = list.Items[0]
		}
		return len(list.Items) > 0
	})
	if diff, _ := a.Metadata["diff"].(string); !strings.Contains(diff, "+  LAST=swordfish") {
		t.Errorf("the approver sees %q", diff)
	}
	if _, err := m.Approvals.Answer(t.Context(), carol, a.ID, once); err != nil {
		t.Fatal(err)
	}
	testrig.Eventually(t, "the edit has ended", func() bool {
		c, err = m.calls.GetCall(t.Context(), alice, c.ID)
		return err != nil || c.Finished()
	})
	if row, err := json.Marshal(c); err != nil || c.IsError || bytes.Contains(row, []byte("swordfish")) || !strings.Contains(c.Output, `reading it would need an approval by config.toml:3 (read "keys/asked")`) {
		t.Errorf("approved: %s", row)
	}
}
