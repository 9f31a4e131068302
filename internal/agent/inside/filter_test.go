package inside

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/toold/toold/internal/agent"
)

// No program loads a filter: it has those of the fork thread, a waiting shell and
// one that is started afresh alike. The kernel's count of a process goes up with
// each filter that is loaded in it or was before it.
func TestProgramsInheritTheFilter(t *testing.T) {
	r, c := newWaitingRig(t, nil)
	count := regexp.MustCompile(`(?m)^Seccomp_filters:\t\d+$`)
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/status", r.server.session.spawner.tid))
	if err != nil {
		t.Fatal(err)
	}
	want := count.FindString(string(b))
	if own, err := os.ReadFile("/proc/thread-self/status"); err != nil || want == "" || want == count.FindString(string(own)) {
		t.Fatalf("the fork thread has no filter of its own: %q, %v", want, err)
	}
	for i, run := range []func(*agent.Conn, string, string) (string, *agent.Outcome){r.bash, r.given, r.given} {
		if out, _ := run(c, fmt.Sprint("c", i), "grep ^Seccomp_filters: /proc/self/status"); strings.TrimSpace(out) != want {
			t.Errorf("a program has %q, the thread that starts it %q", strings.TrimSpace(out), want)
		}
	}
}
