// Package oci is the sandbox driver for runtime-spec bundles: each session is
// one container of runc, or of another runtime with the same command line.
//
// # What lies where
//
//	StateDir/agent-<hash>         private copy of the agent binary
//	RunDir/oci/sandboxes/<id>/    all that one sandbox has on disk:
//	    record.json               who it belongs to; written first, removed last
//	    config.json               the bundle's runtime-spec
//	    pid                       the agent's host pid, written by the runtime
//	    rootfs/                   its own skeleton, if the common one does not fit
//	    control/socket            listening socket, in a directory for root only
//	RunDir/oci/roots/<hash>/      the common skeleton: mount points, links, a few
//	                              /etc files
//	RunDir/oci/runtime/<name>/    the runtime's own state
//	<cgroup>/<parent>/<id>/       the session's cgroup in every hierarchy
//
// The skeleton is the container's root, mounted read-only. It holds nothing
// that a session could have chosen except the names of its mount points, so
// that the runtime never resolves a path through a stranger's files.
//
// # How a sandbox is made
//
// Sources are pinned as descriptors and turned into detached, id-mapped mounts;
// the runtime then starts the agent with a listening socket and a pipe with the
// nonce as inherited descriptors; the detached mounts are moved into the
// running container by descriptor. The control socket has no path inside.
//
// # How it ends
//
// Every process of a session, the runtime's own helpers included, is born below
// one cgroup of the v2 hierarchy (a hybrid host's empty one is enough; where
// none is mounted, a detached mount is used), so that one write to cgroup.kill
// ends it whatever state it is in. What is left on disk is found again by its
// record, a cgroup without one by its extended attributes.
package oci
