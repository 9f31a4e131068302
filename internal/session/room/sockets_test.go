package room

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSockets(t *testing.T) {
	t.Parallel()
	host := Sockets()
	defer host.Close()
	host.Now() // what is read first is not kept
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	wrote := 0
	for range 4 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		n, _ := c.Write(make([]byte, 64<<20)) // what nobody reads
		wrote += n
	}
	// Each processor counts a mebibyte by itself before all see it.
	if got, least := host.Now(), int64(wrote)/2-int64(runtime.NumCPU())<<20; got < least {
		t.Errorf("sockets keep %d bytes, four connections %d", got, wrote)
	}
}

func TestFileLocks(t *testing.T) {
	t.Parallel()
	if _, err := os.ReadFile("/sys/kernel/slab/file_lock_cache/objects"); err != nil {
		t.Skip(err)
	}
	host := FileLocks()
	defer host.Close()
	host.Now()
	const files, each = 20, 200
	dir := t.TempDir()
	for i := range files {
		f, err := os.Create(filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for j := range each {
			l := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(2 * j), Len: 1}
			if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := host.Now(); got < files*each*64 {
		t.Errorf("%d locks are %d bytes", files*each, got)
	}
}
