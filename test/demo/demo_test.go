package demo

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/internal/testrig"
)

// tier is a way to run the demonstration.
type tier struct {
	name  string // as TOOLD_TEST_REQUIRE has it
	env   string
	needs []string // files of the source tree

	// otherwise are lines of the first tier in whose place this one prints others. Each
	// must be there once.
	otherwise map[string][]string
}

var tiers = []tier{
	{name: "oci", env: "RUNTIME=runc", needs: []string{"bin/toold", "bin/toolagent", "bin/runc"}},
	{name: "runsc", env: "RUNTIME=runsc", needs: []string{"bin/runsc"}, otherwise: map[string][]string{
		"  back at cp_ID…, before call call_ID…": {
			"  conflict: gVisor takes no mount into a running sandbox: not enforceable on this host",
			"  end the session: its changes stay, and can be applied, discarded and forked then",
			"$ toolctl discard .git README.md client notes",
			"  dropped; left: 0",
		},
	}},
	{name: "docker", env: "DRIVER=docker"},
}

// changing is what differs from one run to the next, or is the tier's name.
var changing = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\b(ses|call|apr|cp)_[0-9a-z]+`), "${1}_ID"},
	{regexp.MustCompile(`\b\d+ ms\b`), "N ms"},
	{regexp.MustCompile(`\b\d+ left behind`), "N left behind"},
	// What is killed may not have become sleep yet; the line is cut at its width.
	{regexp.MustCompile(`\(1 process \((bash|setsid|sleep)\) in the background was killed.*`), "(1 process (NAME) in the background was killed"},
	{regexp.MustCompile(`(?m)^  [0-9a-f]{7,40} .*$`), "  COMMIT"},
	{regexp.MustCompile(`: ready, (oci/runc|oci/runsc|docker/\w+)\n`), ": ready, TIER\n"},
	{regexp.MustCompile(`runtime="\w+"`), `runtime="TIER"`},
}

func normal(text string) string {
	for _, c := range changing {
		text = c.what.ReplaceAllString(text, c.with)
	}
	return text
}

// expects is what the tier must print where the first one prints text.
func (tr tier) expects(t *testing.T, text string) string {
	t.Helper()
	for usual, here := range tr.otherwise {
		if n := strings.Count(text, "\n"+usual+"\n"); n != 1 {
			t.Errorf("the first tier prints %q %d times", usual, n)
		}
		text = strings.Replace(text, "\n"+usual+"\n", "\n"+strings.Join(here, "\n")+"\n", 1)
	}
	return text
}

// TestEveryTierGivesTheSameAnswers compares with the first one, and each tier with what it
// is known to do otherwise.
func TestEveryTierGivesTheSameAnswers(t *testing.T) {
	var want string
	for _, tr := range tiers {
		t.Run(tr.name, func(t *testing.T) {
			got := normal(tr.run(t))
			if want == "" {
				want = got
				// What holds nothing compares well with anything.
				for _, text := range []string{"out of memory (limit 512MiB)", "all 200 lines, in order, once", "back at cp_ID…", "applied: README.md; left out: 0", "completed, allow by apr_ID", ": ended"} {
					if !strings.Contains(got, text) {
						t.Errorf("it does not show %q:\n%s", text, got)
					}
				}
				return
			}
			compare(t, got, tr.expects(t, want))
		})
		if want == "" {
			return // skipped, or broken: there is nothing to compare with
		}
	}
}

func compare(t *testing.T, got, want string) {
	t.Helper()
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		var gl, wl string
		if i < len(g) {
			gl = g[i]
		}
		if i < len(w) {
			wl = w[i]
		}
		if gl != wl {
			t.Errorf("line %d: got %q, want %q", i+1, gl, wl)
		}
	}
	if t.Failed() {
		t.Logf("all of it:\n%s", got)
	}
}

// run gives what the demonstration prints.
func (tr tier) run(t *testing.T) string {
	t.Helper()
	why := ""
	if os.Geteuid() != 0 {
		why = "toold needs root"
	}
	for _, f := range tr.needs {
		if _, err := os.Stat("../../" + f); err != nil {
			why = "there is no " + f + ": run make build runsc"
		}
	}
	if why != "" {
		testrig.Skipf(t, tr.name, "%s", why)
	}
	cmd := exec.CommandContext(t.Context(), "../../scripts/demo")
	cmd.Env = append(os.Environ(), tr.env)
	// So that it ends what it has begun.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", tr.env, err, out, errors.String())
	}
	return string(out)
}
