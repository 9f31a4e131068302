package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	toolrun "github.com/toold/toold/internal/tool/run"
)

// endings are all ways in which a command can end of which its exit code does not say everything, as
// the daemon tells them.
var endings = []struct {
	exit toolrun.Exit
	note string // what the daemon says beside that
}{
	{exit: toolrun.Exit{Reason: toolrun.ReasonTimeout}},
	{exit: toolrun.Exit{Reason: toolrun.ReasonSignal, Code: -1, Signal: "SIGSEGV"}},
	{exit: toolrun.Exit{Reason: toolrun.ReasonMemory, Code: -1, Signal: "SIGKILL"}},
	{exit: toolrun.Exit{Reason: toolrun.ReasonMemory, Code: -1, Signal: "SIGKILL", Host: "its sockets kept too much; close them"}},
	{exit: toolrun.Exit{Reason: toolrun.ReasonPIDs, Code: 254, BackgroundKilled: 2}},
	{exit: toolrun.Exit{Reason: toolrun.ReasonDisk, Code: 1, Full: "/tmp", Raise: "tmp"}},
	{exit: toolrun.Exit{Reason: toolrun.ReasonDisk, Code: 1}},
	{exit: toolrun.Exit{Reason: toolrun.ReasonOutputLimit, Code: -1, Signal: "SIGTERM"}},
	{exit: toolrun.Exit{Reason: toolrun.ReasonAborted, Code: -1, Signal: "SIGTERM"}},
	{exit: toolrun.Exit{Reason: toolrun.ReasonSessionEnded, Code: -1}},
	{exit: toolrun.Exit{Reason: toolrun.ReasonLost, Code: -1}},
	{exit: toolrun.Exit{Reason: toolrun.ReasonExit, Code: 1}, note: "no network in this session: ask for one"},
	{exit: toolrun.Exit{Reason: toolrun.ReasonExit, Starved: true}},
}

// TestEndsAreSaidAlike: why a command ended and what to do is said in the same words by all that
// shows it, to models and to people.
func TestEndsAreSaidAlike(t *testing.T) {
	for _, e := range endings {
		t.Run(string(e.exit.Reason), func(t *testing.T) {
			t.Parallel()
			trailer := toolrun.Trailer(&e.exit, toolrun.TrailerInfo{Timeout: time.Second, MostTimeout: time.Minute, MemoryLimit: 1 << 20, PIDsLimit: 9, Room: " (1 MiB)"})
			text := strings.TrimSuffix(trailer+"\n"+e.note, "\n")
			notes := strings.Split(strings.TrimPrefix(text, "exit code 1\n"), "\n")
			call := bashDone("printed\n"+text, e.exit.Metadata())
			call.IsError, call.Metadata["notes"] = true, notes
			for where, said := range shownBy(t, call) {
				for _, n := range notes {
					// What toolctl itself says is folded nowhere here: no terminal.
					if !strings.Contains(said, n) {
						t.Errorf("%s does not say %q but %q", where, n, said)
					}
				}
			}
		})
	}
}

// shownBy is what each command shows of a call, with all that it says.
func shownBy(t *testing.T, call client.Call) map[string]string {
	t.Helper()
	h := callHandlers(call, client.Output{Text: "printed\n"})
	h["DELETE /v1/sessions/{id}"], h["POST /v1/sessions"] = answerWith(session()), answerWith(session())
	h["GET /v1/sessions/{id}"] = answerWith(session())
	h["GET /v1/sessions/{id}/calls"] = answerWith(client.List[client.Call]{Items: []client.Call{call}})
	h["GET /v1/calls/{id}"] = answerWith(call)
	h["GET /v1/calls/{id}/output"] = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "printed\n") }
	h["GET /v1/tools"] = answerWith(map[string]any{"items": []any{map[string]any{"name": "bash", "description": "runs", "inputSchema": map[string]any{"type": "object"}}}})
	d := startFake(t, h)
	report := filepath.Join(t.TempDir(), "report")
	shown := map[string]string{}
	for _, args := range []string{
		"call review bash", "call review bash --stream", "exec review -- x", "run --report " + report + " -- x",
		"session logs review", "session logs review " + fakeCall,
	} {
		r := d.ctl(strings.Fields(args)...)
		shown[args] = r.stdout + r.stderr
	}
	for _, name := range []string{"result.json", "junit.xml"} {
		b, err := os.ReadFile(filepath.Join(report, name))
		if err != nil {
			t.Fatal(err)
		}
		shown[name] = plainText(string(b))
	}
	var followed bytes.Buffer
	f := &logsFollower{sessionLogsCommand: &sessionLogsCommand{app: &app{stdout: &followed, format: formatTable}}}
	if err := f.ended(fakeCall, viaJSON(t, call)); err != nil {
		t.Fatal(err)
	}
	shown["session logs --follow"] = followed.String()
	shown["mcp"] = overMCP(t, d)
	return shown
}

// plainText undoes the escapes of JSON and XML that our sentences have.
func plainText(s string) string {
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", "&#39;", "'", "&#34;", `"`, "&lt;", "<", "&gt;", ">", "&#xA;", "\n", "&amp;", "&").Replace(s)
}

func viaJSON(t *testing.T, c client.Call) *client.Call {
	t.Helper()
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var back client.Call
	decode(t, b, &back)
	return &back
}

// overMCP calls bash as an agent does, and gives what its model reads.
func overMCP(t *testing.T, d *fakeDaemon) string {
	t.Helper()
	in, requests := io.Pipe()
	answers, out := io.Pipe()
	done := make(chan int, 1)
	a := &app{stdin: in, stdout: out, stderr: io.Discard, getenv: func(string) string { return "" }}
	go func() {
		defer out.Close()
		done <- run(t.Context(), []string{"--socket", d.socket, "mcp", "--session", "review"}, a)
	}()
	lines := bufio.NewScanner(answers)
	lines.Buffer(nil, 1<<20)
	ask := func(request string) string {
		if _, err := io.WriteString(requests, request+"\n"); err != nil {
			t.Error(err)
		}
		for lines.Scan() {
			if strings.Contains(lines.Text(), `"id":`) {
				return lines.Text()
			}
		}
		t.Errorf("no answer: %v", lines.Err())
		return ""
	}
	ask(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}`)
	if _, err := io.WriteString(requests, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"); err != nil {
		t.Error(err)
	}
	line := ask(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"bash","arguments":{}}}`)
	requests.Close()
	go func() { _, _ = io.Copy(io.Discard, answers) }()
	<-done
	var answer struct {
		Result struct{ Content []struct{ Text string } }
	}
	decode(t, []byte(line), &answer)
	var b strings.Builder
	for _, c := range answer.Result.Content {
		b.WriteString(c.Text)
	}
	return b.String()
}
