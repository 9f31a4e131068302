package oci

// Unfiltered takes the seccomp filter away, for negative controls.
func (d *Driver) Unfiltered() { d.seccomp = nil }

// Detached makes the driver use a v2 hierarchy of its own, as on a host that
// has none mounted.
func (d *Driver) Detached() error { return d.cg.Detach() }

// KillDir is the session's v2 cgroup.
func (d *Driver) KillDir(id string) string { return d.cg.Dir(id) }

// LimitFile is a control file of the tools.
func (d *Driver) LimitFile(id, controller, v1, v2 string) string {
	return d.cg.File(id, "tools", controller, v1, v2)
}

// SessionMemory is the memory limit of a session, its agent included.
func (d *Driver) SessionMemory(id string) (int, error) {
	return readNumber(d.cg.File(id, "", "memory", "memory.limit_in_bytes", "memory.max"))
}

// HostEtc is what Rootfs "host" shows of the /etc below root: contents of files, and
// "-> target" for links.
func HostEtc(root string) (map[string]string, error) {
	r := new(rootfs)
	err := r.addEtc(root)
	shows := map[string]string{}
	for _, e := range r.entries {
		shows[e.path] = string(e.data)
		if e.link != "" {
			shows[e.path] = "-> " + e.link
		}
	}
	return shows, err
}
