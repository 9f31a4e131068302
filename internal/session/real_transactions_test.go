package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/worktree/layers"
)

// An agent that is killed in the middle of a patch leaves all of it or nothing, in a
// worktree of mode bind and in the changes of one of mode overlay; and the session says
// which.
func TestRealAgentKilledInPatch(t *testing.T) {
	for _, mode := range []client.WorktreeMode{client.WorktreeBind, client.WorktreeOverlay} {
		t.Run(string(mode), func(t *testing.T) {
			h := newRealHouse(t)
			m := openReal(t, h)
			files := map[string]string{}
			for i := range 40 {
				files[fmt.Sprintf("f%d", i)] = "old\n"
			}
			dir := realTree(t, m, ``, files)
			noted := 0
			for try := 0; try < 6 || noted == 0 && try < 100; try++ { // on a busy machine most are too quick to be seen
				noted += killedInPatch(t, m, dir, mode, time.Duration(try%4)*time.Millisecond)
			}
			if noted == 0 {
				t.Error("no agent was killed in a patch")
			}
			t.Logf("%d were killed in their patch", noted)
		})
	}
}

// killedInPatch makes one patch and kills the agent while it is noted. It gives 1 where it
// was, and checks what is there then.
func killedInPatch(t *testing.T, m *Manager, dir string, mode client.WorktreeMode, after time.Duration) int {
	t.Helper()
	for i := range 40 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%d", i)), []byte("old\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_ = os.RemoveAll(filepath.Join(dir, "new"))
	s, err := m.Create(t.Context(), mounter, client.SessionCreate{Worktree: client.Worktree{Source: dir, Mode: mode}})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("*** Begin Patch\n")
	for i := range 20 {
		fmt.Fprintf(&b, "*** Update File: f%d\n@@\n-old\n+new\n*** Delete File: f%d\n*** Add File: new/%d\n+new\n", i, i+20, i)
	}
	input, err := json.Marshal(object{"patch": b.String() + "*** End Patch\n"})
	if err != nil {
		t.Fatal(err)
	}
	agent := agentOf(t, m, s.ID)
	if _, err := m.calls.Call(t.Context(), mounter, s.ID, client.CallCreate{Tool: "apply_patch", Input: input, WaitMillis: new(int64)}, call.Options{}); err != nil {
		t.Fatal(err)
	}
	journal := filepath.Join(m.cfg.JournalDir, s.ID, journalName)
	for until := time.Now().Add(10 * time.Second); ; {
		names, _ := os.ReadDir(journal)
		if len(names) > 0 || time.Now().After(until) {
			break
		}
		if live := m.liveByID(s.ID); live != nil && live.calls.Open() == 0 {
			break // it was too quick to be seen
		}
	}
	time.Sleep(after) // to come to another step of it, whichever
	if err := syscall.Kill(agent, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var v *client.Session
	testrig.Eventually(t, "the session is lost", func() bool {
		v, err = m.Get(t.Context(), mounter, s.ID)
		return err == nil && v.State == client.SessionLost
	})
	tree := dir
	if mode == client.WorktreeOverlay {
		f, release, err := m.cfg.Trees.OpenUpper(s.ID)
		if errors.Is(err, layers.ErrNone) { // there is nothing in it
			return countKilled(v)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		defer f.Close()
		tree = fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	}
	now, was := 0, 0
	var there []string
	for i := range 20 {
		for name, want := range map[string]string{fmt.Sprintf("f%d", i): "new\n", fmt.Sprintf("f%d", i+20): "", fmt.Sprintf("new/%d", i): "new\n"} {
			got, err := os.ReadFile(filepath.Join(tree, name))
			switch {
			case err == nil && string(got) == want:
				now++
				there = append(there, name)
			case want == "" && err != nil && (mode == client.WorktreeBind || isWhiteout(filepath.Join(tree, name))):
				now++
			default:
				was++
			}
		}
	}
	if now > 0 && was > 0 {
		t.Errorf("%d changes are there and %d are not; notes %q; there %q", now, was, v.Notes, there)
	}
	if left, _ := filepath.Glob(tree + "/.toold-*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Lstat(filepath.Dir(journal)); err == nil {
		t.Error("the journal is there")
	}
	return countKilled(v)
}

// countKilled is 1 for a session that says that its agent was killed in the patch.
func countKilled(v *client.Session) int {
	for _, n := range v.Notes {
		if strings.Contains(n, "killed in a change of 60 files: ") {
			return 1
		}
	}
	return 0
}

func isWhiteout(path string) bool {
	var st syscall.Stat_t
	return syscall.Lstat(path, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFCHR
}

// agentOf is the process id on the host of a session's agent.
func agentOf(t *testing.T, m *Manager, id string) int {
	t.Helper()
	var rec struct{ PID int }
	row := m.liveByID(id).Row()
	if err := json.Unmarshal(row.Record, &rec); err != nil || rec.PID == 0 {
		t.Fatalf("record %s: %v", row.Record, err)
	}
	return rec.PID
}

// Tools can neither read nor write the journal, and an agent that cannot write it changes
// nothing.
func TestRealJournalIsTheAgents(t *testing.T) {
	h := newRealHouse(t)
	m := openReal(t, h)
	dir := realTree(t, m, "[permission]\nexternal_directory = \"allow\"\n", map[string]string{"a": "old\n"})
	s, err := m.Create(t.Context(), mounter, client.SessionCreate{Worktree: client.Worktree{Source: dir}})
	if err != nil {
		t.Fatal(err)
	}
	c := realCall(t, m, s.ID, "bash", object{"command": "ls /run/toold/journal; echo x >/run/toold/journal/x; stat -c '%a %u' /run/toold/journal"})
	if strings.Count(c.Output, "ermission denied") != 2 || !strings.Contains(c.Output, "700 0") {
		t.Errorf("tools find %q", c.Output)
	}
	journal := filepath.Join(m.cfg.JournalDir, s.ID, journalName)
	if err := os.Chmod(journal, 0); err != nil {
		t.Fatal(err)
	}
	in := object{"patch": "*** Begin Patch\n*** Update File: a\n@@\n-old\n+new\n*** Add File: b\n+x\n*** End Patch"}
	c = realCall(t, m, s.ID, "apply_patch", in)
	if !c.IsError || !strings.Contains(c.Output, "cannot be noted before it is made") {
		t.Errorf("without a journal: %+v %q", c.Error, c.Output)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(got) != "old\n" {
		t.Errorf("%q, %v", got, err)
	}
	if err := os.Chmod(journal, 0o700); err != nil {
		t.Fatal(err)
	}
	if c = realCall(t, m, s.ID, "apply_patch", in); c.IsError {
		t.Errorf("with one: %+v %q", c.Error, c.Output)
	}
	if left, err := os.ReadDir(journal); err != nil || len(left) > 0 {
		t.Errorf("in the journal: %v, %v", left, err)
	}
}
