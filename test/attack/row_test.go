package attack

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "record the results of this run, and rewrite the table of docs/security.md")

// A row's result on a tier.
const (
	rowHolds         = "holds"
	rowDiffers       = "differs"
	rowNotApplicable = "not applicable"
)

// daemonAlone are the rows that do not depend on what holds the sessions.
var daemonAlone = regexp.MustCompile(`^Test(R\d|D[79]|D1[0-3789])`)

// row is a test of the list of attacks on its way.
type row struct {
	t    *testing.T
	mu   sync.Mutex      // guards seen
	seen map[string]bool // checks that failed as a difference says
}

// rows are those that have begun.
var rows = struct {
	mu      sync.Mutex // guards the maps
	begun   map[string]*row
	results map[string]string // of those that passed, by test
}{begun: map[string]*row{}, results: map[string]string{}}

// beginRow makes the test a row of the table: its differences on this tier are
// looked up, and its result is noted at its end. A second time does nothing.
func beginRow(t *testing.T) *row {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	rows.mu.Lock()
	r, ok := rows.begun[name]
	if !ok {
		r = &row{t: t, seen: map[string]bool{}}
		rows.begun[name] = r
	}
	rows.mu.Unlock()
	if ok {
		return r
	}
	if current != tiers[0] && daemonAlone.MatchString(name) {
		t.Skipf("is about the daemon alone, and tried on %s", tiers[0].name)
	}
	for _, d := range differencesOf(name, current.name) {
		if len(d.checks) == 0 {
			noteResult(name, rowNotApplicable)
			t.Skipf("means nothing on %s: %s: %s", current.name, d.what, d.why)
		}
	}
	t.Cleanup(func() { r.end(name) })
	return r
}

// end compares what the row has found with what is written down.
func (r *row) end(name string) {
	if r.t.Skipped() {
		return
	}
	result := rowHolds
	r.mu.Lock()
	for _, d := range differencesOf(name, current.name) {
		result = rowDiffers
		for _, c := range d.checks {
			if !r.seen[c] && !r.t.Failed() {
				r.t.Errorf("%s does not differ in %q any more: remove it from differences", current.name, c)
			}
		}
	}
	r.mu.Unlock()
	if r.t.Failed() {
		return
	}
	noteResult(name, result)
	if current.require == "" || *update {
		return
	}
	if recorded := recordedResults(current.name)[name]; recorded != "" && recorded != result {
		r.t.Errorf("%s %s here; the table of docs/security.md says %q: run this with -update", name, result, recorded)
	}
}

func noteResult(name, result string) {
	rows.mu.Lock()
	defer rows.mu.Unlock()
	rows.results[name] = result
}

func differencesOf(test, tier string) (list []difference) {
	for _, d := range differences {
		if d.test == test && d.tier == tier {
			list = append(list, d)
		}
	}
	return list
}

// holds is a check of a row under a name, by which differences may speak of it.
func holds(t *testing.T, check string, ok bool, format string, args ...any) {
	t.Helper()
	if ok {
		return
	}
	r := beginRow(t)
	name, _, _ := strings.Cut(t.Name(), "/")
	for _, d := range differencesOf(name, current.name) {
		if slices.Contains(d.checks, check) {
			r.mu.Lock()
			r.seen[check] = true
			r.mu.Unlock()
			return
		}
	}
	t.Errorf("%s: %s", check, fmt.Sprintf(format, args...))
}

// Results are kept in testdata/results, one file for each tier, one line for each
// row: "TestK1Status holds".

func resultsFile(tier string) string { return filepath.Join("testdata", "results", tier) }

// recordedResults are those of the last run with -update, by test.
func recordedResults(tier string) map[string]string {
	results := map[string]string{}
	for line := range strings.Lines(read(resultsFile(tier))) {
		if test, result, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			results[test] = result
		}
	}
	return results
}

// recordResults adds this run's results to those of the tier.
func recordResults() error {
	rows.mu.Lock()
	defer rows.mu.Unlock()
	if len(rows.results) == 0 {
		return nil
	}
	results := recordedResults(current.name)
	maps.Copy(results, rows.results)
	known, err := attacks()
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, a := range known {
		if r := results[a.test]; r != "" {
			fmt.Fprintf(&text, "%s %s\n", a.test, r)
		}
	}
	if err := os.MkdirAll(filepath.Dir(resultsFile(current.name)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(resultsFile(current.name), []byte(text.String()), 0o644)
}
