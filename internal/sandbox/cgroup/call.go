package cgroup

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// callLabel is the extended attribute in which an agent writes on the cgroup of a call's
// programs which call that is.
const callLabel = "user.toold.call"

// fileidKernfs is the type of a handle that is a cgroup's id, FILEID_KERNFS.
const fileidKernfs = 0xfe

// maxCallLabel bounds what is read of a label.
const maxCallLabel = 256

// Call reads what an agent has written on the v2 cgroup with this id, whichever session's it
// is: the text is the agent's. It is false where there is none, and where this daemon may not
// open cgroups by their id.
func (t *Tree) Call(id uint64) (string, bool) {
	root, err := unix.Open(t.v2, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", false
	}
	defer unix.Close(root)
	handle := unix.NewFileHandle(fileidKernfs, binary.NativeEndian.AppendUint64(nil, id))
	dir, err := unix.OpenByHandleAt(root, handle, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)
	if err != nil {
		return "", false
	}
	defer unix.Close(dir)
	label := make([]byte, maxCallLabel)
	n, err := unix.Fgetxattr(dir, callLabel, label)
	if err != nil || n == 0 {
		return "", false
	}
	return string(label[:n]), true
}
