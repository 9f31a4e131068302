package agent

import "testing"

func TestBash(t *testing.T) {
	r := newRig(t)
	c, _ := r.connect(r.hello())
	out, o := r.bash(c, "c1", "id; pwd; env; echo err >&2; ls -l /proc/self/fd; grep -E 'Seccomp|NoNew|Cap|Sig' /proc/self/status; exit 3")
	t.Logf("%s\n%+v %+v", out, o.Result, o.Exit)
}
