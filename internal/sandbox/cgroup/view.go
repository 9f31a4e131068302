package cgroup

import "path/filepath"

// viewRoot is where programs look for cgroups.
const viewRoot = "/sys/fs/cgroup"

// online is where programs look for the processors that they may use.
const online = "/sys/devices/system/cpu/online"

// viewed are the controllers by which programs size themselves: heaps by memory,
// threads by the others. A JVM takes no notice of any on v1 unless all four are
// there.
var viewed = []string{"memory", "cpu", "cpuacct", "cpuset"}

// ViewDirs are the directories that Views may name, on whatever host.
func ViewDirs() []string {
	dirs := []string{viewRoot}
	for _, name := range append([]string{"unified"}, viewed...) {
		dirs = append(dirs, filepath.Join(viewRoot, name))
	}
	return dirs
}

// Views says what of its own cgroups a session may see, read-only: by the path
// inside, the path on the host. Programs find their limits there, instead of taking
// the host's memory and processors for theirs.
//
// It is the session's cgroup and not that of the tools below it: what is at the
// place of the mount is what /proc/self/cgroup, whose root is the namespace's,
// calls "/". On v2 limits are found by programs that look upwards from the cgroup
// of their call, as JDK 25 does; others find no limit of memory.
func (t *Tree) Views(id string) map[string]string {
	views := map[string]string{}
	for _, name := range viewed {
		if mount, ok := t.v1[name]; ok {
			views[filepath.Join(viewRoot, name)] = filepath.Join(mount, t.Path(id))
		}
	}
	if len(t.v2has) > 0 && t.detached == nil {
		target := viewRoot
		if len(views) > 0 {
			target = filepath.Join(viewRoot, "unified")
		}
		views[target] = t.Dir(id)
	}
	if file := t.File(id, "tools", "cpuset", "cpuset.effective_cpus", "cpuset.cpus.effective"); file != "" {
		views[online] = file
	}
	return views
}
