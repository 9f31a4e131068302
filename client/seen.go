package client

import (
	"fmt"
	"io/fs"
	"syscall"
)

// SeenAs is Worktree.Seen, and Mount.Seen, of a directory of which this is known; "" where the system does not say
// which one it is.
func SeenAs(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}
