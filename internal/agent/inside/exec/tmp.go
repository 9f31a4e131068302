package exec

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/thread"
)

// freeTime bounds FreeTmp: a tool may make files as fast as they are removed.
const freeTime = 8 * time.Second

// FreeTmp removes all that is in dirs, as the tool user, on a thread of its own
// that ends with it; a name may be "". It gives up after some seconds. Where less than so many
// bytes of memory are in them, they are not what fills it, and stay.
func (p *Programs) FreeTmp(ctx context.Context, least int64, dirs ...string) error {
	if n := inMemory(dirs); n < least {
		return fmt.Errorf("%d bytes are in them, which is not what fills the memory", n)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, freeTime,
		fmt.Errorf("not done after %v; something makes files as fast as they are removed, end it first", freeTime))
	defer cancel()
	_, err := thread.Run(func() (struct{}, error) {
		if s := p.spawner; s.uid >= 0 {
			if err := setEffective(s.uid, s.gid); err != nil {
				return struct{}{}, err
			}
		}
		var errs []error
		for _, dir := range dirs {
			if dir != "" {
				errs = append(errs, beneath.Empty(ctx, dir))
			}
		}
		return struct{}{}, errors.Join(errs...)
	})
	return err
}

// inMemory is how many bytes are in file systems in memory.
func inMemory(dirs []string) (sum int64) {
	for _, dir := range dirs {
		used, _ := memoryOf(dir)
		sum += used
	}
	return sum
}

// InMemory reports whether what is in a directory takes memory and no disk; "" is none.
func InMemory(dir string) bool {
	_, is := memoryOf(dir)
	return is
}

// memoryOf is how many bytes are in a directory's file system, if that is in memory.
func memoryOf(dir string) (used int64, is bool) {
	var st unix.Statfs_t
	if dir == "" || unix.Statfs(dir, &st) != nil || st.Type != unix.TMPFS_MAGIC {
		return 0, false
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize, true
}
