package deploy

import (
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
)

// withoutRights runs toolctl in containers that do not have what toold needs. It says
// in one sentence what is missing and what to add.
func (e *engine) withoutRights(t *testing.T) {
	for _, tt := range []struct {
		name string
		host container.HostConfig
		says []string
	}{
		{"default rights", container.HostConfig{}, []string{"toold lacks CAP_SYS_ADMIN, CAP_SYS_PTRACE", "add --privileged"}},
		{"capabilities alone", container.HostConfig{CapAdd: []string{"SYS_ADMIN", "SYS_PTRACE"}}, []string{"of /proc are covered", "systempaths=unconfined"}},
		{
			"cgroups read-only",
			container.HostConfig{
				CapAdd: []string{"SYS_ADMIN", "SYS_PTRACE"}, SecurityOpt: []string{"seccomp=unconfined"}, MaskedPaths: []string{}, ReadonlyPaths: []string{},
			},
			[]string{"is mounted read-only", "-v /sys/fs/cgroup:/sys/fs/cgroup"},
		},
	} {
		for _, command := range [][]string{{"run", "--", "true"}, {"doctor"}} {
			tt.host.NetworkMode = "none"
			made, err := e.ContainerCreate(t.Context(), &container.Config{Image: "toold", Entrypoint: append([]string{"toolctl"}, command...)}, &tt.host, nil, nil, "")
			must(t, err)
			must(t, e.ContainerStart(t.Context(), made.ID, container.StartOptions{}))
			ended, errs := e.ContainerWait(t.Context(), made.ID, container.WaitConditionNotRunning)
			var code int64
			select {
			case err := <-errs:
				must(t, err)
			case end := <-ended:
				code = end.StatusCode
			}
			out := e.log(made.ID)
			e.remove(made.ID, true)
			if code == 0 || command[0] == "run" && (code != 125 || strings.Count(out, "\n") > 1) {
				t.Errorf("%s, %s: exit status %d\n%s", tt.name, command[0], code, out)
			}
			for _, want := range tt.says {
				if !strings.Contains(out, want) {
					t.Errorf("%s, %s: no %q in\n%s", tt.name, command[0], want, out)
				}
			}
		}
	}
}
