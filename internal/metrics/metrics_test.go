package metrics

import (
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/session"
)

var _ session.Observer = (*Metrics)(nil)

func newMetrics(t *testing.T) *Metrics {
	t.Helper()
	m, err := New(Config{
		Version: client.Version{Version: "1.2.3", Commit: "abc", GoVersion: "go1.26"},
		Tools:   []string{"bash", "read"}, Runtimes: []string{"runc"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// scrape gives the lines of toold's own metrics.
func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	b, err := io.ReadAll(w.Result().Body)
	if err != nil || w.Code != 200 {
		t.Fatalf("scrape: %d %v", w.Code, err)
	}
	var own []string
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "toold_") {
			own = append(own, line)
		}
	}
	return strings.Join(own, "")
}

func has(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if !strings.Contains(text, l+"\n") {
			t.Errorf("no line %q in\n%s", l, text)
		}
	}
}

func TestCalls(t *testing.T) {
	m := newMetrics(t)
	now := time.Now()
	started := client.CallTime{Started: &now}
	for _, c := range []client.Call{
		{Tool: "bash", Status: client.CallCompleted, Time: started},
		{Tool: "bash", Status: client.CallCompleted, IsError: true, Time: started, Metadata: map[string]any{"reason": "timeout"}},
		{Tool: "bash", Status: client.CallCompleted, IsError: true, Time: started, Metadata: map[string]any{"reason": "exit"}},
		{Tool: "bash", Status: client.CallError, Error: &client.Error{Code: client.CodeDenied}},
		{Tool: "bash", Status: client.CallError, Error: &client.Error{Code: client.CodeSessionLost}, Metadata: map[string]any{"reason": "lost"}},
		{Tool: "read", Status: client.CallError},
		{Tool: "rm -rf /\n", Status: client.CallCompleted, Metadata: map[string]any{"reason": "made up"}},
	} {
		m.CallFinished(&c, 0, 3*time.Millisecond)
	}
	m.OutputSpilled(100)
	m.OutputSpilled(-5) // a hostile size must not stop the counter from counting
	m.LenientConversion("bash")
	m.LenientConversion("nonsense")
	has(t, scrape(t, m),
		`toold_build_info{commit="abc",go_version="go1.26",version="1.2.3"} 1`,
		`toold_tool_calls_total{outcome="ok",tool="bash"} 1`,
		`toold_tool_calls_total{outcome="tool_error",tool="bash"} 2`,
		`toold_tool_calls_total{outcome="denied",tool="bash"} 1`,
		`toold_tool_calls_total{outcome="error",tool="bash"} 1`,
		`toold_tool_calls_total{outcome="error",tool="read"} 1`,
		`toold_tool_calls_total{outcome="ok",tool="unknown"} 1`,
		`toold_tool_call_duration_seconds_count{tool="bash"} 3`,
		`toold_tool_call_duration_seconds_bucket{tool="bash",le="0.0025"} 0`,
		`toold_tool_call_duration_seconds_bucket{tool="bash",le="0.005"} 3`,
		`toold_call_kills_total{reason="timeout"} 1`,
		`toold_call_kills_total{reason="lost"} 1`,
		`toold_output_spilled_bytes_total 100`,
		`toold_lenient_conversions_total{tool="bash"} 1`,
		`toold_lenient_conversions_total{tool="unknown"} 1`,
	)
}

func TestSessions(t *testing.T) {
	m := newMetrics(t)
	report := func(id, runtime string, s client.SessionState) {
		m.SessionState(&client.Session{ID: id, Runtime: runtime, State: s}, "")
	}
	report("ses_1", "runc", client.SessionCreating)
	report("ses_1", "runc", client.SessionReady)
	report("ses_1", "runc", client.SessionReady) // twice
	report("ses_2", "/opt/strange", client.SessionReady)
	report("ses_3", "runc", client.SessionEnded) // ended before it was ever counted
	m.SandboxCreated("runc", false, 30*time.Millisecond)
	m.SandboxCreated("/opt/strange", true, 2*time.Millisecond)
	has(t, scrape(t, m),
		`toold_sessions{runtime="runc",state="creating"} 0`,
		`toold_sessions{runtime="runc",state="ready"} 1`,
		`toold_sessions{runtime="unknown",state="ready"} 1`,
		`toold_sandbox_create_duration_seconds_count{runtime="runc",warm="false"} 1`,
		`toold_sandbox_create_duration_seconds_count{runtime="unknown",warm="true"} 1`,
	)
	report("ses_1", "runc", client.SessionEnding)
	report("ses_1", "runc", client.SessionEnded)
	report("ses_2", "/opt/strange", client.SessionLost)
	has(t, scrape(t, m),
		`toold_sessions{runtime="runc",state="ready"} 0`,
		`toold_sessions{runtime="runc",state="ending"} 0`,
		`toold_sessions{runtime="unknown",state="ready"} 0`,
	)
	if len(m.live) != 0 {
		t.Errorf("%d ended sessions are still remembered", len(m.live))
	}
}

// TestSeriesAreBounded: whatever clients and sandboxes say, the number of series
// stays what the configuration makes it.
func TestSeriesAreBounded(t *testing.T) {
	m := newMetrics(t)
	run := func(n int) {
		for i := range n {
			name := fmt.Sprintf("tool-%d", i)
			m.CallFinished(&client.Call{
				Tool: name, Status: client.CallError, Error: &client.Error{Code: client.Code(name)},
				Metadata: map[string]any{"reason": name},
			}, 0, 0)
			m.SessionState(&client.Session{ID: name, Runtime: name, State: client.SessionState(name)}, "")
			m.SessionState(&client.Session{ID: name, Runtime: name, State: client.SessionReady}, "")
			m.SandboxCreated(name, i%2 == 0, time.Second)
			m.LenientConversion(name)
		}
	}
	run(2)
	few := strings.Count(scrape(t, m), "\n")
	run(2000)
	if many := strings.Count(scrape(t, m), "\n"); many != few {
		t.Errorf("%d series after 2000 names, %d after 2", many, few)
	}
}
