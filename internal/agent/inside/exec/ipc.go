package exec

import (
	"encoding/binary"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/thread"
)

// ipc keeps System V shared memory, semaphores and message queues from outliving the programs
// that made them: their memory is the session's, and the next call would die of what nobody
// sees. There is no telling which call has made one, so they go when no program is left; shared
// memory goes earlier where the kernel sees to it (inside.Sysctls). POSIX
// queues stay: they cannot be listed, and the kernel bounds them to 800 KiB a user.
type ipc struct {
	uid, gid int // of the tools; what others have made stays. uid -1: nothing is removed

	mu    sync.Mutex // guards the fields below, and keeps programs from being started while objects go
	users int        // programs that may have a process
	kinds [len(objects)]seen
}

// seen is what is known about the objects of a kind.
type seen struct {
	others int // count of what was not ours to remove
	from   int // where to look first
}

// object is a kind of objects: the call about them, its commands that tell how much there is and
// what there is at an index, and where in the first answer a number is that is 0 without any, in
// ints.
type object struct {
	call       uintptr
	info, stat uintptr
	used       int
}

// objects are the kinds; the numbers are those of linux/shm.h, sem.h and msg.h.
var objects = [...]object{
	{unix.SYS_SHMCTL, 14, 13, 2}, // pages: gVisor goes on counting segments that were removed
	{unix.SYS_SEMCTL, 19, 18, 7},
	{unix.SYS_MSGCTL, 12, 11, 0},
}

// removeID is IPC_RMID.
const removeID = 0

// mostIndex bounds how far it is looked for objects: Linux has indices below it, and gives them
// again; gVisor counts on and on.
const mostIndex = 1 << 15

// buffer takes what the calls answer, which is less.
type buffer [256]byte

// control is the call that looks at objects and removes them.
func (o *object) control(id int, command uintptr, b *buffer) (int, error) {
	var n uintptr
	var errno unix.Errno
	if o.call == unix.SYS_SEMCTL {
		n, _, errno = unix.RawSyscall6(o.call, uintptr(id), 0, command, uintptr(unsafe.Pointer(b)), 0, 0)
	} else {
		n, _, errno = unix.RawSyscall(o.call, uintptr(id), command, uintptr(unsafe.Pointer(b)))
	}
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// count is how much of a kind there is; 0 also where the kernel has none.
func (o *object) count() int {
	var b buffer
	if _, err := o.control(0, o.info, &b); err != nil {
		return 0
	}
	return int(binary.NativeEndian.Uint32(b[4*o.used:]))
}

// enter counts a program that is to be started.
func (x *ipc) enter() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.users++
}

// leave is the end of what enter began. The last one removes what programs have left.
func (x *ipc) leave() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.users--; x.users > 0 || x.uid < 0 {
		return
	}
	for i := range objects {
		o, k := &objects[i], &x.kinds[i]
		if n := o.count(); n <= k.others {
			k.others = n
			continue
		}
		_, _ = thread.Run(func() (struct{}, error) {
			if err := setEffective(x.uid, x.gid); err != nil {
				return struct{}{}, err
			}
			o.remove(uint32(x.uid), k)
			k.others = o.count()
			return struct{}{}, nil
		})
	}
}

// remove removes the objects of a user.
func (o *object) remove(uid uint32, k *seen) {
	left := true
	begin := k.from
	for _, first := range []int{begin, 0} {
		for i := first; i < first+mostIndex && left; i++ {
			var b buffer
			id, err := o.control(i, o.stat, &b)
			if err != nil {
				continue
			}
			if id == 0 {
				id = i // gVisor's answer; its indices are ids
			}
			owner, maker := binary.NativeEndian.Uint32(b[4:]), binary.NativeEndian.Uint32(b[12:])
			if owner != uid && maker != uid {
				continue
			}
			if _, err := o.control(id, removeID, &b); err == nil {
				k.from, left = i, o.count() > k.others
			}
		}
	}
}
