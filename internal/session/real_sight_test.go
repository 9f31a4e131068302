package session

import (
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	onsight "github.com/toold/toold/internal/sensitive"
)

// TestRealApplyNamesSensitive: apply writes none of the files that a host runs or obeys on sight, and
// names each, wherever it lies, in every spelling that the table has; asked to, it writes them.
func TestRealApplyNamesSensitive(t *testing.T) {
	a := newApplyRig(t)
	a.write("f", "1\n")
	set := *a.m.settings.Load()
	set.Worktrees.Sensitive = []string{"*.onsight", "/marked"}
	a.m.Reload(set)
	a.session("s")
	more := []string{"deep/x.onsight", "marked"} // by configuration
	want, made := slices.Clone(more), []string{"deep/x.onsight", "marked"}
	for i, name := range onsight.Top() {
		if name == ".git" || name == ".hg" || name == ".svn" {
			continue // of repositories, which have tests of their own
		}
		dir := []string{"", "deep/er/"}[i%2]
		want = append(want, dir+name)
		made = append(made, "'"+dir+name+"'")
	}
	a.bash("s", "mkdir -p deep/er; for f in plain deep/plain "+strings.Join(made, " ")+"; do echo x >$f; done")
	for _, dry := range []bool{true, false} {
		v := a.apply("s", client.ApplyRequest{DryRun: dry})
		slices.Sort(want)
		slices.Sort(v.Sensitive)
		if !slices.Equal(v.Sensitive, want) {
			t.Errorf("dry run %v: it names %q, want %q", dry, v.Sensitive, want)
		}
		if slices.ContainsFunc(v.Written, func(p string) bool { return onsight.Path(p) == onsight.OnSight || slices.Contains(more, p) }) || !slices.Contains(v.Written, "deep/plain") {
			t.Errorf("dry run %v: it writes %q", dry, v.Written)
		}
	}
	if v := a.apply("s", client.ApplyRequest{IncludeSensitive: true}); len(v.Sensitive) > 0 || !slices.Contains(v.Written, ".cursorrules") && !slices.Contains(v.Written, "deep/er/.cursorrules") {
		t.Errorf("asked to write them: %+v", v)
	}
}
