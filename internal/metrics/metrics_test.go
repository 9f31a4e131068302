package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/hook"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/session"
)

var _ session.Observer = (*Metrics)(nil)

// newOf is New; what is not there to be asked says nothing.
func newOf(cfg Config) (*Metrics, error) {
	none := func() uint64 { return 0 }
	if cfg.Usage == nil {
		cfg.Usage = func(context.Context) ([]client.TenantUsage, error) { return nil, nil }
	}
	if cfg.Space == nil {
		cfg.Space = func() Space { return Space{} }
	}
	if cfg.StoreErrors == nil {
		cfg.StoreErrors, cfg.AuditErrors = none, none
	}
	return New(cfg)
}

func newMetrics(t *testing.T) *Metrics {
	t.Helper()
	m, err := newOf(Config{
		Version: client.Version{Version: "1.2.3", Commit: "abc", GoVersion: "go1.26"},
		Tools:   []string{"bash", "read"}, Aliases: map[string][]string{"bash": {"shell"}}, Runtimes: []string{"runc"}, Permissions: []string{"bash", "read"},
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
		{Tool: "bash", Status: client.CallCompleted, Time: started, Metadata: map[string]any{"truncated": true}},
		{Tool: "bash", Status: client.CallCompleted, IsError: true, Time: started, Metadata: map[string]any{"reason": "timeout", "truncated": false}},
		{Tool: "bash", Status: client.CallCompleted, IsError: true, Time: started, Metadata: map[string]any{"reason": "exit"}},
		{Tool: "bash", Status: client.CallError, Error: &client.Error{Code: client.CodeDenied}},
		{Tool: "bash", Status: client.CallError, Error: &client.Error{Code: client.CodeStaleApproval}},
		{Tool: "bash", Status: client.CallError, Error: &client.Error{Code: client.CodeSessionLost}, Metadata: map[string]any{"reason": "lost"}},
		{Tool: "read", Status: client.CallError},
		{Tool: "rm -rf /\n", Status: client.CallCompleted, Metadata: map[string]any{"reason": "made up"}},
	} {
		m.CallFinished(&c, 7*time.Millisecond, 3*time.Millisecond)
	}
	m.OutputSpilled(100)
	m.OutputSpilled(-5) // a hostile size must not stop the counter from counting
	m.LenientConversion("bash")
	m.LenientConversion("nonsense")
	m.Alias("bash", "shell")
	m.Alias("bash", "hostile")
	m.Alias("hostile", "shell")
	has(t, scrape(t, m),
		`toold_build_info{commit="abc",go_version="go1.26",version="1.2.3"} 1`,
		`toold_tool_calls_total{outcome="ok",tool="bash"} 1`,
		`toold_tool_calls_total{outcome="tool_error",tool="bash"} 2`,
		`toold_tool_calls_total{outcome="denied",tool="bash"} 2`,
		`toold_tool_calls_total{outcome="error",tool="bash"} 1`,
		`toold_tool_calls_total{outcome="error",tool="read"} 1`,
		`toold_tool_aliases_total{alias="shell",tool="bash"} 1`,
		`toold_tool_aliases_total{alias="unknown",tool="bash"} 1`,
		`toold_tool_aliases_total{alias="unknown",tool="unknown"} 1`,
		`toold_tool_calls_total{outcome="ok",tool="unknown"} 1`,
		`toold_tool_call_duration_seconds_count{tool="bash"} 3`,
		`toold_tool_call_duration_seconds_bucket{tool="bash",le="0.0025"} 0`,
		`toold_tool_call_duration_seconds_bucket{tool="bash",le="0.005"} 3`,
		`toold_tool_call_queue_duration_seconds_count 3`,
		`toold_tool_call_queue_duration_seconds_bucket{le="0.005"} 0`,
		`toold_tool_call_queue_duration_seconds_bucket{le="0.01"} 3`,
		`toold_call_kills_total{reason="timeout"} 1`,
		`toold_call_kills_total{reason="memory"} 0`,
		`toold_output_truncations_total{tool="bash"} 1`,
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
		`toold_sessions_ended_total{state="ended"} 0`,
		`toold_sandbox_create_failures_total{runtime="runc"} 0`,
	)
	report("ses_1", "runc", client.SessionEnding)
	report("ses_1", "runc", client.SessionEnded)
	report("ses_2", "/opt/strange", client.SessionLost)
	has(t, scrape(t, m),
		`toold_sessions{runtime="runc",state="ready"} 0`,
		`toold_sessions{runtime="runc",state="ending"} 0`,
		`toold_sessions{runtime="unknown",state="ready"} 0`,
		`toold_sessions_ended_total{state="ended"} 1`,
		`toold_sessions_ended_total{state="lost"} 1`,
		`toold_sandbox_create_failures_total{runtime="runc"} 0`,
		`toold_sandbox_create_failures_total{runtime="unknown"} 0`, // it was ready once
	)
	if len(m.sessions.live) != 0 {
		t.Errorf("%d ended sessions are still remembered", len(m.sessions.live))
	}
}

// TestCreateFailures: a session that is lost and never was ready could not be made;
// one that an earlier daemon made was ready.
func TestCreateFailures(t *testing.T) {
	for _, tt := range []struct {
		name   string
		states []client.SessionState
		want   int
	}{
		{"could not be made", []client.SessionState{client.SessionCreating, client.SessionEnding, client.SessionLost}, 1},
		{"lost", []client.SessionState{client.SessionCreating, client.SessionReady, client.SessionEnding, client.SessionLost}, 0},
		{"ended while it was made", []client.SessionState{client.SessionCreating, client.SessionEnding, client.SessionEnded}, 0},
		{"adopted, then lost", []client.SessionState{client.SessionReady, client.SessionEnding, client.SessionLost}, 0},
		{"adopted as it ended", []client.SessionState{client.SessionEnding, client.SessionLost}, 0},
		{"lost before it was known", []client.SessionState{client.SessionLost}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMetrics(t)
			for _, s := range tt.states {
				m.SessionState(&client.Session{ID: "ses_1", Runtime: "runc", State: s}, "")
			}
			has(t, scrape(t, m), fmt.Sprintf(`toold_sandbox_create_failures_total{runtime="runc"} %d`, tt.want))
		})
	}
}

// TestAges: what lasts too long shows its age, and no longer when it is over.
func TestAges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetrics(t)
		report := func(id string, s client.SessionState) {
			m.SessionState(&client.Session{ID: id, Runtime: "runc", State: s}, "")
		}
		asked := client.Approval{ID: "apr_1", Created: time.Now(), Expires: time.Now().Add(10 * time.Minute)}
		m.ApprovalAsked(&asked)
		report("ses_1", client.SessionCreating)
		time.Sleep(100 * time.Second)
		report("ses_1", client.SessionCreating) // told again
		report("ses_2", client.SessionCreating)
		m.ApprovalAsked(&asked) // told again, as after a restart
		m.ApprovalAsked(&client.Approval{ID: "apr_2", Created: time.Now()})
		time.Sleep(200 * time.Second)
		has(t, scrape(t, m),
			`toold_session_oldest_transition_seconds{state="creating"} 300`,
			`toold_session_oldest_transition_seconds{state="ending"} 0`,
			`toold_approval_oldest_pending_seconds 300`,
			`toold_approvals_pending 2`,
		)
		report("ses_1", client.SessionEnding)
		time.Sleep(time.Second)
		m.ApprovalReplied(&asked, "once", 300*time.Second)
		m.ApprovalReplied(&client.Approval{ID: "apr_3"}, "sudo", -time.Second) // one that was never told
		has(t, scrape(t, m),
			`toold_session_oldest_transition_seconds{state="creating"} 201`,
			`toold_session_oldest_transition_seconds{state="ending"} 1`,
			`toold_approval_oldest_pending_seconds 201`,
			`toold_approvals_pending 1`,
			`toold_approval_replies_total{reply="once"} 1`,
			`toold_approval_replies_total{reply="unknown"} 1`,
			`toold_approval_replies_total{reply="reject"} 0`,
			`toold_approval_wait_seconds_bucket{le="120"} 1`,
			`toold_approval_wait_seconds_count 2`,
		)

		// One whose end is never told, since it could not be stored.
		m.ApprovalReplied(&client.Approval{ID: "apr_2"}, "gone", 0)
		m.ApprovalAsked(&asked)
		time.Sleep(5 * time.Minute)
		has(t, scrape(t, m), `toold_approvals_pending 1`)
		time.Sleep(2 * time.Minute)
		has(t, scrape(t, m), `toold_approvals_pending 0`, `toold_approval_oldest_pending_seconds 0`)
	})
}

func TestPolicy(t *testing.T) {
	m := newMetrics(t)
	judged := func(permission string, a policy.Action) judge.Judged {
		return judge.Judged{Request: policy.Request{Permission: permission, Pattern: "secret"}, Action: a}
	}
	m.Decided(&judge.Decision{Tool: "bash", Requests: []judge.Judged{
		judged("bash", policy.Allow), judged("bash", policy.Allow), judged("bash", policy.Deny),
		judged(policy.PermissionExternal, policy.Ask), judged("github_push", policy.Allow), judged("read", "made up"),
	}})
	m.Decided(&judge.Decision{Tool: "bash", Approver: "uid 0", Requests: []judge.Judged{judged("bash", policy.Allow)}})
	m.DoomLoop("bash", 1, policy.Ask)
	m.DoomLoop("bash", 3, policy.Deny)
	m.DoomLoop("bash", -1, policy.Deny)
	m.DoomLoop("nonsense", 1<<40, policy.Allow)
	m.Hooked(hook.CallBefore, "denied", time.Millisecond)
	m.Hooked(hook.CallBefore, "on fire", time.Millisecond)
	m.Hooked("made.up", "ok", -time.Millisecond)
	has(t, scrape(t, m),
		`toold_policy_decisions_total{action="allow",permission="bash"} 2`,
		`toold_policy_decisions_total{action="deny",permission="bash"} 1`,
		`toold_policy_decisions_total{action="ask",permission="external_directory"} 1`,
		`toold_policy_decisions_total{action="ask",permission="doom_loop"} 0`,
		`toold_policy_decisions_total{action="allow",permission="other"} 1`,
		`toold_policy_decisions_total{action="deny",permission="read"} 1`,
		`toold_doom_loops_total{action="ask",period="1",tool="bash"} 1`,
		`toold_doom_loops_total{action="deny",period="3",tool="bash"} 1`,
		`toold_doom_loops_total{action="deny",period="longer",tool="bash"} 1`,
		`toold_doom_loops_total{action="allow",period="longer",tool="unknown"} 1`,
		`toold_hooks_total{event="call.before",outcome="denied"} 1`,
		`toold_hooks_total{event="call.before",outcome="failed"} 1`,
		`toold_hooks_total{event="unknown",outcome="ok"} 1`,
		`toold_hook_duration_seconds_count{event="call.before"} 2`,
	)
}

func TestWorktrees(t *testing.T) {
	m := newMetrics(t)
	m.WorktreeOperation("apply", "ok", time.Second)
	m.WorktreeOperation("apply", "conflict", time.Second)
	m.WorktreeOperation("apply", "on fire", time.Second)
	m.WorktreeOperation("made up", "ok", -time.Second)
	has(t, scrape(t, m),
		`toold_worktree_operations_total{operation="apply",outcome="ok"} 1`,
		`toold_worktree_operations_total{operation="apply",outcome="conflict"} 1`,
		`toold_worktree_operations_total{operation="apply",outcome="failed"} 1`,
		`toold_worktree_operations_total{operation="merge",outcome="failed"} 0`,
		`toold_worktree_operations_total{operation="unknown",outcome="ok"} 1`,
		`toold_worktree_operation_duration_seconds_sum{operation="apply"} 3`,
		`toold_worktree_operation_duration_seconds_count{operation="diff"} 0`,
	)
}

func TestUsage(t *testing.T) {
	answer := []client.TenantUsage{
		{
			Tenant: "a", Sessions: 2, Queued: 3, Calls: 1, CPUMillis: 1500, MemoryBytes: 100, DiskBytes: 20, LayerBytes: 25, WorktreeBytes: 26, IOBytes: 30, OOMKills: 4,
			MaxSessions: 5, MaxRecordBytes: 1000,
		},
		{Tenant: "x", CPUMillis: 1000, MaxSessions: 7},
		{Tenant: "y", CPUMillis: 500, MaxSessions: 8},
	}
	var fails error
	m, err := newOf(Config{
		Tenants: []string{"a", "default"},
		Usage:   func(context.Context) ([]client.TenantUsage, error) { return answer, fails },
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`toold_tenant_sessions{tenant="a"} 2`, `toold_tenant_calls{tenant="a"} 1`, `toold_tenant_cpu_seconds_total{tenant="a"} 1.5`,
		`toold_tenant_memory_bytes{tenant="a"} 100`, `toold_tenant_disk_bytes{tenant="a"} 20`, `toold_tenant_io_bytes_total{tenant="a"} 30`,
		`toold_oom_kills_total{tenant="a"} 4`, `toold_tenant_cpu_seconds_total{tenant="default"} 0`, `toold_tenant_cpu_seconds_total{tenant="unknown"} 1.5`,
		`toold_tenant_queued{tenant="a"} 3`, `toold_tenant_layer_bytes{tenant="a"} 25`, `toold_tenant_worktree_bytes{tenant="a"} 26`,
		`toold_tenant_max_sessions{tenant="a"} 5`, `toold_tenant_max_calls{tenant="a"} +Inf`, `toold_tenant_max_record_bytes{tenant="a"} 1000`,
		`toold_tenant_max_sessions{tenant="default"} +Inf`, `toold_tenant_max_sessions{tenant="unknown"} +Inf`,
	}
	has(t, scrape(t, m), want...)
	answer, fails = nil, errors.New("no cgroups today")
	has(t, scrape(t, m), want...) // counters do not vanish
	answer, fails = []client.TenantUsage{{Tenant: "x", CPUMillis: 2000}}, nil
	m.AddTenants([]string{"x"})
	has(t, scrape(t, m), `toold_tenant_cpu_seconds_total{tenant="x"} 2`, `toold_tenant_cpu_seconds_total{tenant="unknown"} 0`)
}

func TestSpace(t *testing.T) {
	m, err := newOf(Config{Space: func() Space {
		return Space{State: Disk{1, 2}, Audit: Disk{3, 4}, MinFree: 5, Database: 6, Journal: 7, AuditLog: 8, Outputs: 9, Images: 10, Worktrees: 11, Floor: 12, Promised: 13, Unwritten: 14, Stopped: 15, Memory: Memory{18, 19, 20}, Caches: 16, CacheLayers: 17}
	}})
	if err != nil {
		t.Fatal(err)
	}
	has(t, scrape(t, m),
		`toold_disk_free_bytes{dir="state"} 1`, `toold_disk_size_bytes{dir="state"} 2`,
		`toold_disk_free_bytes{dir="audit"} 3`, `toold_disk_size_bytes{dir="audit"} 4`, `toold_disk_min_free_bytes 5`,
		`toold_kept_bytes{kind="database"} 6`, `toold_kept_bytes{kind="journal"} 7`, `toold_kept_bytes{kind="audit"} 8`,
		`toold_kept_bytes{kind="outputs"} 9`, `toold_kept_bytes{kind="images"} 10`, `toold_kept_bytes{kind="worktrees"} 11`,
		`toold_disk_bytes{kind="floor"} 12`, `toold_disk_bytes{kind="promised"} 13`, `toold_disk_bytes{kind="unwritten"} 14`, `toold_disk_stopped_sessions_total 15`,
		`toold_memory_bytes{kind="available"} 18`, `toold_memory_bytes{kind="floor"} 19`, `toold_memory_stopped_sessions_total 20`,
		`toold_cache_bytes{kind="kept"} 16`, `toold_cache_bytes{kind="layers"} 17`,
	)
	has(t, scrape(t, newMetrics(t)), `toold_disk_free_bytes{dir="state"} 0`, `toold_kept_bytes{kind="images"} 0`)
}

func TestReloaded(t *testing.T) {
	m := newMetrics(t)
	has(t, scrape(t, m), `toold_config_last_reload_successful 1`)
	m.Reloaded(errors.New("line 7"))
	has(t, scrape(t, m), `toold_config_last_reload_successful 0`)
	m.Reloaded(nil)
	has(t, scrape(t, m), `toold_config_last_reload_successful 1`)
}

// TestHistogramsAreNative: who asks for native histograms gets them, with bounded
// buckets, beside the classic ones.
func TestHistogramsAreNative(t *testing.T) {
	m := newMetrics(t)
	now := time.Now()
	for i := range 10_000 {
		m.CallFinished(&client.Call{Tool: "bash", Status: client.CallCompleted, Time: client.CallTime{Started: &now}}, 0, time.Duration(i*i)*time.Microsecond)
	}
	all, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	histograms := 0
	for _, f := range all {
		if !strings.HasPrefix(f.GetName(), "toold_") {
			continue
		}
		for _, x := range f.GetMetric() {
			h := x.GetHistogram()
			if h == nil {
				continue
			}
			histograms++
			if h.Schema == nil || len(h.GetBucket()) == 0 {
				t.Errorf("%s %v: schema %v, %d classic buckets", f.GetName(), x.GetLabel(), h.Schema, len(h.GetBucket()))
			}
			if n := len(h.GetPositiveDelta()); n > 200 || h.GetSampleCount() == 10_000 && f.GetName() == "toold_tool_call_duration_seconds" && n < 50 {
				t.Errorf("%s: %d native buckets", f.GetName(), n)
			}
		}
	}
	if histograms < 6 {
		t.Errorf("%d histograms", histograms)
	}
}

func TestErrors(t *testing.T) {
	m, err := newOf(Config{StoreErrors: func() uint64 { return 3 }, AuditErrors: func() uint64 { return 4 }})
	if err != nil {
		t.Fatal(err)
	}
	has(t, scrape(t, m), `toold_store_errors_total 3`, `toold_audit_errors_total 4`)
	has(t, scrape(t, newMetrics(t)), `toold_store_errors_total 0`, `toold_audit_errors_total 0`)
}

// TestSeriesAreConstant: whatever clients and sandboxes say, 10,000 sessions have
// the series that none have, and no text of theirs is in them.
func TestSeriesAreConstant(t *testing.T) {
	var usage []client.TenantUsage
	m, err := newOf(Config{
		Tools: []string{"bash", "read"}, Runtimes: []string{"runc"}, Permissions: []string{"bash", "read"}, Tenants: []string{"a", "default"},
		Usage: func(context.Context) ([]client.TenantUsage, error) { return usage, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	before := strings.Count(scrape(t, m), "\n")
	for i := range 10_000 {
		name := fmt.Sprintf("hostile-%d", i)
		m.SessionState(&client.Session{ID: name, Runtime: name, State: client.SessionState(name)}, "")
		m.SessionState(&client.Session{ID: name, Runtime: name, State: client.SessionCreating}, "")
		m.SessionState(&client.Session{ID: name, Runtime: name, State: client.SessionReady}, "")
		m.SandboxCreated(name, i%2 == 0, time.Second)
		now := time.Now()
		m.CallFinished(&client.Call{
			Tool: name, Input: []byte(`"` + name + `"`), Status: client.CallError, Error: &client.Error{Code: client.Code(name)},
			Metadata: map[string]any{"reason": name, "truncated": name}, Time: client.CallTime{Started: &now},
		}, 0, 0)
		m.OutputSpilled(int64(i))
		m.LenientConversion(name)
		m.Alias(name, name)
		m.Alias("bash", name)
		m.Decided(&judge.Decision{Tool: name, Requests: []judge.Judged{
			{Request: policy.Request{Permission: name, Pattern: name}, Action: policy.Action(name), Rule: name},
		}})
		m.DoomLoop(name, i-5000, policy.Action(name))
		m.ApprovalAsked(&client.Approval{ID: name, Tenant: name, Tool: name, Created: now})
		m.ApprovalReplied(&client.Approval{ID: name}, name, time.Duration(i))
		m.Hooked(name, name, time.Duration(i))
		m.WorktreeOperation(name, name, time.Duration(i))
		usage = append(usage, client.TenantUsage{Tenant: name, CPUMillis: 1})
	}
	text := scrape(t, m)
	if after := strings.Count(text, "\n"); after != before {
		t.Errorf("%d lines after 10,000 sessions, %d before", after, before)
	}
	if strings.Contains(text, "hostile") {
		t.Error("what a client said is in the metrics")
	}
	has(t, text, `toold_sessions{runtime="unknown",state="ready"} 10000`, `toold_tenant_cpu_seconds_total{tenant="unknown"} 10`)
}

// TestCountsInParallel lets the race detector look on.
func TestCountsInParallel(t *testing.T) {
	m := newMetrics(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			id := fmt.Sprint("ses_", i)
			for range 200 {
				m.SessionState(&client.Session{ID: id, Runtime: "runc", State: client.SessionReady}, "")
				m.CallFinished(&client.Call{Tool: "bash", Status: client.CallCompleted}, 0, 0)
				m.ApprovalAsked(&client.Approval{ID: id})
				m.ApprovalReplied(&client.Approval{ID: id}, "once", 0)
				m.SessionState(&client.Session{ID: id, Runtime: "runc", State: client.SessionEnded}, "")
			}
			scrape(t, m)
		})
	}
	wg.Wait()
	has(t, scrape(t, m),
		`toold_sessions{runtime="runc",state="ready"} 0`, `toold_sessions_ended_total{state="ended"} 1600`,
		`toold_approvals_pending 0`, `toold_tool_calls_total{outcome="ok",tool="bash"} 1600`,
	)
}

// BenchmarkCall is what the metrics add to one call: its judgement and its end.
func BenchmarkCall(b *testing.B) {
	m, err := newOf(Config{Tools: []string{"bash"}, Permissions: []string{"bash"}})
	if err != nil {
		b.Fatal(err)
	}
	now := time.Now()
	c := &client.Call{
		Tool: "bash", Status: client.CallCompleted, Time: client.CallTime{Started: &now},
		Metadata: map[string]any{"reason": "exit", "truncated": false, "exit_code": 0},
	}
	d := &judge.Decision{Requests: []judge.Judged{{Request: policy.Request{Permission: "bash"}, Action: policy.Allow}}}
	b.ReportAllocs()
	for b.Loop() {
		m.Decided(d)
		m.CallFinished(c, time.Millisecond, 2*time.Millisecond)
	}
}
