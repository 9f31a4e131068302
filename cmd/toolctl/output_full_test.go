package main

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

// silent are the commands that print nothing of their own on standard output.
var silent = map[string]bool{"gen-docs": true, "keep-agent": true}

// Where standard output takes nothing, every command fails and says why: a file that
// is shorter than it should be must not look like all that there was.
func TestFullDisk(t *testing.T) {
	dir, _ := auditDir(t)
	rules := filepath.Join(t.TempDir(), "rules.toml")
	writeFile(t, rules, "[permission]\nbash = \"ask\"\n\n[[test]]\ntool = \"bash\"\ninput = { command = \"x\" }\nexpect = \"ask\"\n", 0o600)
	image := client.Image{Digest: "sha256:0", Names: []string{"tools"}}
	call := bashDone("some output", exited(0))
	done := client.Call{ID: fakeCall, SessionID: fakeSession, Tool: "read", Status: client.CallCompleted, Output: "text"}
	whole := backupOf(t, "toold.db", "x")
	backup := filepath.Join(t.TempDir(), "backup.tar")
	writeFile(t, backup, whole, 0o600)
	d := startFake(t, map[string]http.HandlerFunc{
		"GET /v1/backup":           func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(whole)) },
		"GET /v1/sessions":         answerWith(client.List[client.Session]{Items: []client.Session{session()}}),
		"POST /v1/sessions":        answerWith(session()),
		"GET /v1/sessions/{id}":    answerWith(session()),
		"DELETE /v1/sessions/{id}": answerWith(session()),
		"PATCH /v1/sessions/{id}":  answerWith(session()),
		"POST /v1/sessions/{id}/calls": func(w http.ResponseWriter, r *http.Request) {
			final := call
			if r.PathValue("id") == "other" {
				final = done
			}
			stream(final, client.Output{Stream: "stdout", Text: "some output"})(w, r)
		},
		"GET /v1/sessions/{id}/calls": answerWith(client.List[client.Call]{Items: []client.Call{call}}),
		"GET /v1/sessions/{id}/diff": func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Accept") == "application/json" {
				answer(w, 200, client.Changes{Items: []client.Change{{Path: "x", Status: client.ChangeAdded}}})
				return
			}
			_, _ = w.Write([]byte("diff"))
		},
		"POST /v1/sessions/{id}/apply":                      answerWith(client.Applied{}),
		"POST /v1/sessions/{id}/discard":                    answerWith(client.Discarded{}),
		"GET /v1/sessions/{id}/checkpoints":                 answerWith(client.List[client.Checkpoint]{}),
		"POST /v1/sessions/{id}/checkpoints":                answerWith(client.Checkpoint{ID: "cp_1"}),
		"DELETE /v1/sessions/{id}/checkpoints/{checkpoint}": answerWith(struct{}{}),
		"POST /v1/sessions/{id}/restore":                    answerWith(client.Restored{}),
		"POST /v1/sessions/{id}/fork":                       answerWith(session()),
		"GET /v1/sessions/{id}/files":                       func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("content")) },
		"GET /v1/calls/{id}":                                answerWith(call),
		"POST /v1/calls/{id}/abort":                         answerWith(call),
		"GET /v1/calls/{id}/output":                         func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("some output")) },
		"GET /v1/approvals":                                 answerWith(client.List[client.Approval]{Items: []client.Approval{approval("apr_1", "git push")}}),
		"POST /v1/approvals/{id}":                           answerWith(approval("apr_1", "git push")),
		"GET /v1/approvals/saved": answerWith(client.List[client.SavedApproval]{Items: []client.SavedApproval{
			{ID: "apr_1.1", Permission: "bash", Pattern: "git *"},
		}}),
		"DELETE /v1/approvals/saved/{id}": answerWith(struct{}{}),
		"GET /v1/sessions/{id}/brief":     func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("some words")) },
		"GET /v1/sessions/{id}/network":   answerWith(client.SessionNetwork{Mode: client.NetworkRules}),
		"GET /v1/events": func(w http.ResponseWriter, r *http.Request) {
			sendEvent(w, "call.completed", client.Event{ID: "evt_1", Type: "call.completed"})
			if r.URL.Query().Get("stored") != "" {
				sendEvent(w, client.EventEnd, client.Event{Type: client.EventEnd})
			}
			<-r.Context().Done()
		},
		"GET /v1/tools":          answerWith(client.List[client.ToolDefinition]{Items: policyTools}),
		"GET /v1/usage":          answerWith(client.List[client.TenantUsage]{Items: []client.TenantUsage{{Tenant: "ci"}}}),
		"GET /v1/doctor":         answerWith(client.Doctor{Checks: []client.Check{{Group: "limit", Name: "memory", Status: client.CheckOK}}}),
		"POST /v1/gc":            answerWith(client.List[client.Garbage]{}),
		"GET /v1/ready":          answerWith(client.Health{Status: "ok"}),
		"POST /v1/drain":         answerWith(client.Health{Status: "draining"}),
		"POST /v1/reload":        answerWith(struct{}{}),
		"GET /v1/version":        answerWith(client.Version{Version: "1", API: "v1"}),
		"GET /v1/caches":         answerWith(client.List[client.Cache]{}),
		"DELETE /v1/caches/{id}": answerWith(struct{}{}),
		"POST /v1/sessions/{id}/caches/{cache}/promote": answerWith(client.Cache{Name: "go"}),
		"GET /v1/images":          answerWith(client.List[client.Image]{Items: []client.Image{image}}),
		"POST /v1/images":         func(w http.ResponseWriter, _ *http.Request) { sendEvent(w, "completed", image) },
		"POST /v1/images/import":  answerWith(image),
		"DELETE /v1/images/{id}":  answerWith(struct{}{}),
		"POST /v1/policy/explain": answerWith(client.PolicyVerdict{Tool: "bash", Action: "allow", Rule: "default"}),
		"POST /v1/policy/replay": answerWith(client.PolicyReplayed{Calls: 1, Changes: []client.PolicyChange{
			{CallID: fakeCall, Tool: "bash", Time: time.Now(), Was: "allow", Now: "ask"},
		}}),
	})
	type row struct {
		args string
		code int
	}
	rows := []row{
		{"run -- true", 125}, // whose 1 is the command's
		{"run -o json -- true", 125},
		{"exec review -- true", 125},
		{"status", 1},
		{"ready", 1},
		{"reload", 1},
		{"drain --timeout 0", 1},
		{"wait review " + fakeCall, 1},
		{"abort review " + fakeCall, 1},
		{"diff review", 1},
		{"diff review --stat", 1},
		{"diff review --name-status", 1},
		{"diff review -o json", 1},
		{"apply review", 1},
		{"discard review x", 1},
		{"checkpoint review", 1},
		{"checkpoint ls review", 1},
		{"checkpoint rm review cp_1", 1},
		{"restore review cp_1", 1},
		{"undo review", 1},
		{"fork review", 1},
		{"network log review", 1},
		{"network learn review", 1},
		{"session create", 1},
		{"session list", 1},
		{"session list -o json", 1},
		{"session list -o yaml", 1},
		{"session list -o name", 1},
		{"session show review", 1},
		{"session brief review", 1},
		{"session set review --ttl 2h", 1},
		{"session logs review", 1},
		{"session logs review --short", 1},
		{"session logs review " + fakeCall, 1},
		{"session report review --report " + filepath.Join(t.TempDir(), "report"), 1},
		{"session rm review", 1},
		{"call review bash", 125},
		{"call review bash --stream", 125},
		{"call review bash -o json", 125},
		{"call review bash --stream -o json", 125},
		{"call other read", 1},
		{"call other read --stream", 1},
		{"tools", 1},
		{"tools --format openai", 1},
		{"approvals", 1},
		{"approvals list", 1},
		{"approvals watch", 1},
		{"approvals watch -o json", 1},
		{"approvals answer apr_1 once", 1},
		{"approvals saved", 1},
		{"approvals saved list", 1},
		{"approvals saved rm apr_1.1", 1},
		{"policy explain bash {}", 1},
		{"policy test " + rules, 1},
		{"policy replay " + rules, 1},
		{"audit verify " + dir, 1},
		{"audit tail " + dir, 1},
		{"audit export " + dir, 1},
		{"cp review:x -", 1},
		{"events", 1},
		{"events --follow", 1},
		{"events -o yaml", 1},
		{"top", 1},
		{"usage", 1},
		{"doctor", 1},
		{"gc", 1},
		{"backup create " + filepath.Join(t.TempDir(), "b"), 1},
		{"backup restore " + backup + " " + filepath.Join(t.TempDir(), "state"), 1},
		{"image", 1},
		{"image list", 1},
		{"image pull tools", 1},
		{"image import -", 1},
		{"image rm tools", 1},
		{"cache ls", 1},
		{"cache fill go --from mod=/", 1},
		{"cache promote review go", 1},
		{"cache rm go", 1},
		{"config check " + rules, 1},
		{"config show " + rules, 1},
		{"completion bash", 1},
		{"completion zsh", 1},
		{"completion fish", 1},
		{"mcp --print-config zed", 1},
		{"version", 1},
		{"--help", 1},
		{"session", 1},
	}
	for _, c := range rows {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"--socket", d.socket}, strings.Fields(c.args)...)
			full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer full.Close()
			var stderr strings.Builder
			a := &app{stdin: strings.NewReader(""), stdout: full, stderr: &stderr, getenv: func(string) string { return "" }}
			code := run(t.Context(), args, a)
			if code != c.code || strings.Count(stderr.String(), "no space left on device") != 1 {
				t.Errorf("exit %d, want %d; stderr %q", code, c.code, &stderr)
			}
		})
	}
	for _, leaf := range leaves(newRootCommand(&app{})) {
		if !silent[leaf] && !slices.ContainsFunc(rows, func(c row) bool { return strings.HasPrefix(c.args+" ", leaf+" ") }) {
			t.Errorf("no row for %q", leaf)
		}
	}
}

// A reader that has had enough is no failure that anybody must be told of.
func TestReaderGone(t *testing.T) {
	d := startFake(t, map[string]http.HandlerFunc{"GET /v1/sessions": answerWith(client.List[client.Session]{Items: []client.Session{session()}})})
	for _, args := range [][]string{{"session", "list"}, {"session", "list", "-o", "json"}, {"--help"}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
		var stderr strings.Builder
		a := &app{stdin: strings.NewReader(""), stdout: w, stderr: &stderr, getenv: func(string) string { return "" }}
		if code := run(t.Context(), append([]string{"--socket", d.socket}, args...), a); code != exitSignal+int(syscall.SIGPIPE) || stderr.Len() > 0 {
			t.Errorf("%v: exit %d, stderr %q", args, code, &stderr)
		}
		_ = w.Close()
	}
}

// leaves are the commands that do something of their own, without toolctl's name.
func leaves(c *cobra.Command) []string {
	if !c.HasSubCommands() {
		_, path, _ := strings.Cut(c.CommandPath(), " ")
		return []string{path}
	}
	var all []string
	for _, sub := range c.Commands() {
		all = append(all, leaves(sub)...)
	}
	return all
}
