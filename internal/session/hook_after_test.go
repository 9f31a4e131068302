package session

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/hook"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/testrig"
)

func TestHookAfter(t *testing.T) {
	replace := `echo '{"output":"nothing to see"}'`
	tests := []struct {
		name, script, command string
		open                  bool
		output                string // exactly, or a part of it after "~"
		isError               bool
		outcome               string
	}{
		{name: "says nothing", script: "cat >/dev/null", command: "echo x", output: "x\n", outcome: "ok"},
		{name: "says nothing in JSON", script: "echo {}", command: "echo x", output: "x\n", outcome: "ok"},
		{name: "replaces", script: replace, command: "echo x", output: "nothing to see", outcome: "replaced"},
		{name: "replaces by nothing", script: `echo '{"output":""}'`, command: "echo x", output: client.NoOutput, outcome: "replaced"},
		{name: "replaces a long one", script: replace, command: "big 200000", output: "nothing to see", outcome: "replaced"},
		{name: "of a command that failed", script: replace, command: "echo x; exit 3", output: "nothing to see", isError: true, outcome: "replaced"},
		{name: "fails", script: "exit 1", command: "echo s3cret", output: "~its result is withheld: hook hook.sh failed: exit status 1", isError: true, outcome: "failed"},
		{name: "fails, open", script: "exit 1", command: "echo x", open: true, output: "~x\n[hook hook.sh failed", outcome: "failed"},
		{name: "may not deny", script: `echo '{"action":"deny"}'`, command: "echo s3cret", output: "~withheld", isError: true, outcome: "failed"},
		{name: "no string", script: `echo '{"output":null}'`, command: "echo s3cret", output: "~withheld", isError: true, outcome: "failed"},
		{name: "too long", script: `printf '{"output":"'; head -c 1100000 /dev/zero | tr '\0' x; echo '"}'`, command: "echo s3cret", output: "~withheld", isError: true, outcome: "failed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hk := scripted(t, hook.CallAfter, tt.script)
			hk.FailOpen = tt.open
			h, o, id := hooked(t, hk)
			c := h.call(id, bashCall(tt.command))
			if c.Status != client.CallCompleted || c.IsError != tt.isError {
				t.Fatalf("%s, is_error %t: %v", c.Status, c.IsError, c.Error)
			}
			part, loose := strings.CutPrefix(tt.output, "~")
			if !loose && c.Output != tt.output || loose && !strings.Contains(c.Output, part) || strings.Contains(c.Output+c.Title+fmt.Sprint(c.Metadata), "s3cret") {
				t.Errorf("got %q, %q, %v, want %q", c.Output, c.Title, c.Metadata, tt.output)
			}
			if !o.of(hook.CallAfter + " " + tt.outcome) {
				t.Errorf("observers were told %q", o.hooks)
			}
			if again, err := h.m.calls.GetCall(t.Context(), alice, c.ID); err != nil || again.Output != c.Output {
				t.Errorf("the record has %q, %v", again.Output, err)
			}
		})
	}
}

func TestHookAfterSeesTheResult(t *testing.T) {
	dir := t.TempDir()
	first := scripted(t, hook.CallAfter, fmt.Sprintf(`cat > %s/1; echo '{"output":"first"}'`, dir))
	second := scripted(t, hook.CallAfter, fmt.Sprintf(`cat > %s/2`, dir))
	h, _, id := hooked(t, first, second)
	h.call(id, bashCall("echo x; exit 3"))
	read := func(name string) (e hook.Event) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = json.Unmarshal(text, &e)
		}
		if err != nil || e.Result == nil {
			t.Fatalf("%s: %v %s", name, err, text)
		}
		return e
	}
	e := read("1")
	if r := e.Result; r.Status != client.CallCompleted || !strings.HasPrefix(r.Output, "x\n") || !r.IsError || r.Metadata["exit_code"] != 3.0 || r.Usage.CPUMillis != 2 {
		t.Errorf("result: %+v", r)
	}
	if r := read("2").Result; r.Output != "first" {
		t.Errorf("the second saw %q", r.Output)
	}
	// The short output that a hook replaced is kept nowhere.
	c := h.call(id, bashCall("echo x"))
	if r, _, err := h.m.calls.Output(t.Context(), alice, c.ID, client.OutputQuery{}); codeOfErr(err) != client.CodeNotFound {
		t.Errorf("whole output: %v, %v", r, err)
	}
}

func TestHookAfterOfCallsWithoutResult(t *testing.T) {
	h, o, id := hooked(t, scripted(t, hook.CallAfter, "exit 1"))
	set, err := policy.Parse("config.toml", []byte("[permission.bash]\n\"*\" = \"deny\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := *h.m.settings.Load()
	s.Policy = set
	h.m.Reload(s)
	if c := h.call(id, bashCall("echo x")); c.Error == nil || !o.of() {
		t.Errorf("%+v, hooks %q", c.Error, o.hooks)
	}
}

// TestHookWhileTheDaemonLeaves: a call whose hook was interrupted by the end of
// the daemon is finished by the next one, with its hook.
func TestHookWhileTheDaemonLeaves(t *testing.T) {
	began := filepath.Join(t.TempDir(), "began")
	hk := scripted(t, hook.CallAfter, fmt.Sprintf(`if [ -e %[1]s ]; then echo '{"output":"by the next one"}'; else touch %[1]s; sleep 100; fi`, began))
	hk.Timeout = time.Minute
	h, o, id := hooked(t, hk)
	c := h.background(id, "echo x")
	testrig.Eventually(t, "the hook has begun", func() bool { _, err := os.Stat(began); return err == nil })
	h.stop()
	h.openAudited(o)
	if c = h.finished(c.ID); c.Output != "by the next one" || c.Status != client.CallCompleted {
		t.Errorf("%+v", c)
	}
}
