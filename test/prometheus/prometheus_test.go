package prometheus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/metrics"
)

// TestPrometheus lets the real Prometheus scrape a daemon under load. Each panel
// of the dashboard must then find data, each alert the series that it asks about,
// and the numbers must say what happened.
func TestPrometheus(t *testing.T) {
	x := need(t)
	d := startDaemon(t, x, config)
	s := startPrometheus(t, x, d.metrics)
	// The first scrape was before anything happened: a rate wants a beginning.
	before := bytes.Count(d.scrape(t), []byte("\ntoold_"))

	l := &load{t: t, d: d}
	defer l.end()
	l.run()
	text := d.scrape(t)
	if after := bytes.Count(text, []byte("\ntoold_")); after != before {
		t.Errorf("%d series before the load, %d after it", before, after)
	}
	x.run(t, bytes.NewReader(text), "check", "metrics")

	// seen are the numbers that the load has made, and that Prometheus must know.
	t.Run("seen", func(t *testing.T) {
		eventually(t, "Prometheus has seen all of the load", func() (missing error) {
			for _, expr := range seen {
				if err := some(s, expr); err != nil {
					missing = errors.Join(missing, fmt.Errorf("%s: %w", expr, err))
				}
			}
			return missing
		})
	})
	t.Run("panels", func(t *testing.T) { testPanels(t, s) })
	t.Run("alerts", func(t *testing.T) { testAlerts(t, s) })
}

// seen has an expression for each thing that is counted; each must give something.
var seen = []string{
	`toold_build_info == 1`,
	`toold_tool_calls_total{tool="bash",outcome="ok"} > 3`,
	`toold_tool_calls_total{tool="bash",outcome="tool_error"} > 2`,
	`toold_tool_calls_total{tool="bash",outcome="denied"} > 2`,
	`toold_tool_calls_total{tool="read",outcome="ok"} > 0`,
	`toold_tool_calls_total{tool="edit",outcome="ok"} > 0`,
	`sum(toold_tool_calls_total{outcome="error"}) > 0`,
	`toold_tool_call_duration_seconds_count{tool="bash"} > 3`,
	`toold_tool_call_duration_seconds_sum{tool="bash"} > 0.3`,
	`toold_tool_call_queue_duration_seconds_count > 5`,
	`toold_sessions{state="ready",runtime="runc"} == 2`,
	`toold_sessions_ended_total{state="ended"} == 1`,
	`toold_sandbox_create_duration_seconds_count{runtime="runc",warm="false"} == 3`,
	`toold_output_truncations_total{tool="bash"} > 0`,
	`toold_output_spilled_bytes_total > 500000`,
	`toold_lenient_conversions_total{tool="bash"} > 0`,
	`toold_call_kills_total{reason="timeout"} == 1`,
	`toold_call_kills_total{reason="memory"} == 1`,
	`toold_oom_kills_total{tenant="ci"} > 0`,
	`toold_tenant_sessions{tenant="ci"} == 1`,
	`toold_tenant_calls{tenant="default"} == 1`,
	`toold_tenant_cpu_seconds_total{tenant="ci"} > 0.1`,
	`toold_tenant_memory_bytes{tenant="ci"} > 0`,
	`toold_tenant_disk_bytes{tenant="ci"} > 500000`,
	`toold_tenant_max_sessions{tenant="ci"} == 5`,
	`toold_tenant_max_calls{tenant="ci"} == 50`,
	`toold_tenant_record_bytes{tenant="ci"} / toold_tenant_max_record_bytes > 0`,
	`toold_disk_free_bytes{dir="state"} > 0`,
	`toold_disk_min_free_bytes == 268435456`,
	`toold_disk_bytes{kind="floor"} > 0`,
	`toold_kept_bytes{kind="database"} > 0`,
	`toold_policy_decisions_total{permission="bash",action="allow"} > 3`,
	`toold_policy_decisions_total{permission="bash",action="deny"} > 0`,
	`toold_policy_decisions_total{permission="bash",action="ask"} > 2`,
	`toold_doom_loops_total{tool="bash",period="1",action="deny"} > 0`,
	`toold_approvals_pending == 1`,
	`toold_approval_oldest_pending_seconds > 0`,
	`toold_approval_replies_total{reply="once"} == 1`,
	`toold_approval_replies_total{reply="reject"} == 1`,
	`toold_approval_wait_seconds_count == 2`,
	`toold_hooks_total{event="call.before",outcome="ok"} > 0`,
	`toold_hooks_total{event="call.before",outcome="denied"} > 0`,
	`toold_hooks_total{event="call.after",outcome="failed"} > 0`,
	`toold_hook_duration_seconds_count{event="call.before"} > 0`,
	`toold_worktree_operations_total{operation="diff",outcome="ok"} == 1`,
	`toold_worktree_operations_total{operation="checkpoint",outcome="ok"} > 0`,
	`toold_worktree_operations_total{operation="checkpoint",outcome="conflict"} == 1`,
	`toold_worktree_operations_total{operation="discard",outcome="ok"} == 1`,
	`toold_worktree_operation_duration_seconds_count{operation="diff"} == 1`,
	`toold_network_connections_total{verdict="allow"} == 1`,
	`toold_network_connections_total{verdict="deny"} == 1`,
	`toold_network_bytes_total{direction="down"} == 4`,
	`toold_network_dial_seconds_count == 1`,
	`toold_policy_decisions_total{permission="network",action="deny"} == 1`,
	`toold_config_last_reload_successful == 1`,
	// Nothing of this kind has happened, and it is known that it has not.
	`toold_store_errors_total == 0`,
	`toold_audit_errors_total == 0`,
	`toold_sandbox_create_failures_total{runtime="runc"} == 0`,
	`toold_tenant_cpu_seconds_total{tenant="unknown"} == 0`,
	`toold_tool_calls_total{tool="unknown",outcome="ok"} == 0`,
	// The rate of what has happened just now.
	`sum(rate(toold_tool_calls_total[5m])) > 0`,
	`histogram_quantile(0.99, sum by (le) (rate(toold_sandbox_create_duration_seconds_bucket[5m]))) > 0`,
}

// testPanels evaluates what the dashboard asks.
func testPanels(t *testing.T, s *server) {
	for _, p := range loadDashboard(t).Panels {
		for _, target := range p.Targets {
			expr := variables.Replace(target.Expr)
			eventually(t, p.Title+": "+expr, func() error { return some(s, expr) })
		}
	}
	for _, a := range loadDashboard(t).Annotations.List {
		if a.Expr == "" {
			continue
		}
		if _, err := s.query(variables.Replace(a.Expr)); err != nil {
			t.Errorf("annotation %s: %v", a.Name, err)
		}
	}
}

// some says why an expression gives no number.
func some(s *server, expr string) error {
	v, err := s.query(expr)
	if err != nil {
		return err
	}
	if !finite(v) {
		return errNoData
	}
	return nil
}

var errNoData = errors.New("no data")

// selector finds the series that an expression asks about.
var selector = regexp.MustCompile(`\b(?:toold_\w+|process_\w+|up)\b(?:\{[^}]*\})?`)

// testAlerts looks at the rules as Prometheus has loaded them.
func testAlerts(t *testing.T, s *server) {
	rules, err := s.rules()
	must(t, err)
	if len(rules) < 10 {
		t.Fatalf("%d alerts are loaded", len(rules))
	}
	eventually(t, "all alerts have been evaluated", func() error {
		rules, err = s.rules()
		for _, r := range rules {
			if r.Health == "unknown" {
				return errNoData
			}
		}
		return err
	})
	for _, r := range rules {
		if r.Health != "ok" || r.LastError != "" {
			t.Errorf("%s: %s %s", r.Name, r.Health, r.LastError)
		}
		asked := selector.FindAllString(r.Query, -1)
		if len(asked) == 0 {
			t.Errorf("%s asks about nothing of ours: %s", r.Name, r.Query)
		}
		for _, expr := range asked {
			eventually(t, r.Name+" asks about "+expr, func() error { return some(s, expr) })
		}
	}
}

// TestFiles lets promtool look at what is deployed.
func TestFiles(t *testing.T) {
	x := need(t)
	x.run(t, nil, "check", "config", "prometheus.yml")
	x.run(t, nil, "check", "rules", "alerts.yml")
	x.run(t, nil, "test", "rules", "alerts_test.yml")
}

// TestAlertsAreTested: each alert has a case in which it fires, says how bad it is,
// and is explained to who is woken by it.
func TestAlertsAreTested(t *testing.T) {
	rules, err := os.ReadFile(filepath.Join(deploy, "alerts.yml"))
	must(t, err)
	cases, err := os.ReadFile(filepath.Join(deploy, "alerts_test.yml"))
	must(t, err)
	manual, err := os.ReadFile("../../docs/operations.md")
	must(t, err)
	for block := range strings.SplitSeq(string(rules), "- alert: ") {
		name, body, _ := strings.Cut(block, "\n")
		if strings.HasPrefix(name, "#") {
			continue
		}
		fires := regexp.MustCompile(`alertname: ` + name + `\n\s+exp_alerts:`)
		if !fires.Match(cases) {
			t.Errorf("%s fires in no case of alerts_test.yml", name)
		}
		for _, field := range []string{"severity: ", "summary: ", "description: "} {
			if !strings.Contains(body, field) {
				t.Errorf("%s has no %s", name, field)
			}
		}
		anchor := strings.ToLower(name)
		if !strings.Contains(body, "runbook_url: https://github.com/toold/toold/blob/main/docs/operations.md#"+anchor+"\n") {
			t.Errorf("%s has no link to what to do about it", name)
		}
		if !bytes.Contains(manual, []byte(`<a id="`+anchor+"\"></a>`"+name+"`")) {
			t.Errorf("docs/operations.md does not say what to do about %s", name)
		}
	}
}

// TestDashboard: what Grafana wants of a dashboard, as far as that can be seen
// without one, and all of our metrics.
func TestDashboard(t *testing.T) {
	d := loadDashboard(t)
	if d.UID != "toold" || d.Title != "toold" || d.SchemaVersion < 36 {
		t.Errorf("uid %q, title %q, schemaVersion %d", d.UID, d.Title, d.SchemaVersion)
	}
	known := map[string]bool{"__rate_interval": true}
	for _, v := range d.Templating.List {
		known[v.Name] = true
		if v.Type == "query" && !ours(v.Datasource) {
			t.Errorf("the variable %s has another data source", v.Name)
		}
	}
	if !known["datasource"] {
		t.Error("the data source cannot be chosen")
	}
	ids := map[int]bool{}
	var taken [][4]int
	asked := map[string]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 {
			t.Errorf("%s: the id %d is taken", p.Title, p.ID)
		}
		ids[p.ID] = true
		g := p.GridPos
		if g.W < 1 || g.H < 1 || g.X < 0 || g.X+g.W > 24 {
			t.Errorf("%s is not on the grid: %+v", p.Title, g)
		}
		for _, o := range taken {
			if g.X < o[0]+o[2] && o[0] < g.X+g.W && g.Y < o[1]+o[3] && o[1] < g.Y+g.H {
				t.Errorf("%s lies over another panel", p.Title)
			}
		}
		taken = append(taken, [4]int{g.X, g.Y, g.W, g.H})
		if p.Type == "row" {
			continue
		}
		p.check(t, known, asked)
	}
	for _, name := range families(t) {
		if !asked[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// check looks at one panel, and notes the metrics that it asks about.
func (p *panel) check(t *testing.T, known, asked map[string]bool) {
	if !slices.Contains([]string{"stat", "timeseries"}, p.Type) {
		t.Errorf("%s has the type %q", p.Title, p.Type)
	}
	if !slices.Contains([]string{"none", "short", "s", "bytes", "Bps", "ops", "percentunit"}, p.FieldConfig.Defaults.Unit) {
		t.Errorf("%s has the unit %q", p.Title, p.FieldConfig.Defaults.Unit)
	}
	if len(p.Targets) == 0 || !ours(p.Datasource) {
		t.Errorf("%s has %d queries, data source %v", p.Title, len(p.Targets), p.Datasource)
	}
	refs := map[string]bool{}
	for _, q := range p.Targets {
		if q.RefID == "" || refs[q.RefID] || q.LegendFormat == "" || !ours(q.Datasource) {
			t.Errorf("%s: query %q: legend %q, data source %v", p.Title, q.RefID, q.LegendFormat, q.Datasource)
		}
		refs[q.RefID] = true
		for _, v := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(q.Expr, -1) {
			if !known[v[1]] {
				t.Errorf("%s asks with an unknown variable $%s", p.Title, v[1])
			}
		}
		for _, m := range regexp.MustCompile(`\btoold_\w+`).FindAllString(q.Expr, -1) {
			asked[family(m)] = true
		}
	}
}

func ours(d *datasource) bool { return d != nil && d.Type == "prometheus" && d.UID == "${datasource}" }

// family is the metric that a series of a histogram belongs to.
func family(series string) string {
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		series = strings.TrimSuffix(series, suffix)
	}
	return series
}

// families are all metrics of ours.
func families(t *testing.T) (names []string) {
	none := func() uint64 { return 0 }
	m, err := metrics.New(metrics.Config{
		Usage:       func(context.Context) ([]client.TenantUsage, error) { return nil, nil },
		Space:       func() metrics.Space { return metrics.Space{} },
		StoreErrors: none, AuditErrors: none,
	})
	must(t, err)
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, found := range regexp.MustCompile(`(?m)^# TYPE (toold_\w+) `).FindAllStringSubmatch(w.Body.String(), -1) {
		names = append(names, found[1])
	}
	if len(names) < 20 {
		t.Fatalf("found only %v", names)
	}
	return names
}
