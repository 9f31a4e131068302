// Package docker is the sandbox driver for a Docker Engine on this host, by its API:
// each session is a container of any image that the Engine knows.
//
// # How a sandbox is made
//
// The container's program is our agent, bound read-only from the driver's own copy;
// of the image's configuration (entry point, user, health check, volumes,
// environment) nothing takes effect. It gets no network, no capability but the
// agent's three, our seccomp filter, a read-only root, and bounded memory file
// systems. The agent dials a socket in a directory that is bound read-only (package
// control). Nothing is ever run by the Engine's exec.
//
// Worktree, mounts and outputs are not given to the Engine: they are pinned as
// descriptors, made detached, id-mapped mounts, and moved by descriptor into the
// container that runs, so that neither this daemon nor the Engine resolves a path
// that anybody else could change, and an Engine with another view of the file system
// shows the same.
//
// # Cgroups
//
// The Engine makes the container's cgroup below ours. In it the driver makes one for
// the tools, with the limits that were asked for, beside the agent (package cgroup).
// The Engine's own limits are set too, for the container as a whole. Where the
// container's cgroup cannot be used that way, those are the only ones, which the
// session's notes say.
//
// # What lies where
//
//	StateDir/agent-<hash>              private copy of the agent binary
//	RunDir/docker/files/               the files of /etc, the marker
//	RunDir/docker/sandboxes/<id>/      what one sandbox has on disk:
//	    record.json                    who it belongs to; made first, removed last
//	    control/                       where the agent dials
//	container toold-<id>               labels say whose it is
//
// # How it ends
//
// One write to cgroup.kill ends all its processes, then the Engine removes the
// container. While the Engine is down a session goes on, and can be taken over by
// another daemon, since nothing of that needs it.
package docker
