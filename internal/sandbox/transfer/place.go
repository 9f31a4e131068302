package transfer

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
)

// place is where one entry goes.
type place struct {
	parent int
	name   string
	was    *Entry // as it went in; nil for what is new or of another kind
	st     unix.Stat_t
	there  bool // st is of what is there
}

func (p *place) look() (err error) {
	p.st, err = beneath.Lstat(p.parent, p.name)
	p.there = err == nil
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// may says whether the place may be written to: ours may have changed only where the
// other side has not.
func (p *place) may() bool {
	return !p.there && p.was == nil || p.there && p.was != nil && p.was.untouched(&p.st)
}

// has says whether something of a kind is there.
func (p *place) has(kind Kind) bool { return p.there && beneath.KindOf(p.st.Mode) == kind }

func (p *place) putLink(to string) (bool, error) {
	if p.was != nil && p.was.Link == to || p.has(Link) && p.leadsTo(to) {
		return false, nil
	}
	if !p.may() || len(to) > maxPath || to == "" {
		return false, errTouched
	}
	return true, p.replace(func(tmp string) error { return unix.Symlinkat(to, p.parent, tmp) })
}

func (p *place) leadsTo(to string) bool {
	buf := make([]byte, maxPath+1)
	n, err := unix.Readlinkat(p.parent, p.name, buf)
	return err == nil && string(buf[:n]) == to
}

func (p *place) putDir(perm uint32) (bool, error) {
	switch {
	case p.was != nil && p.was.Perm == perm, p.was == nil && p.has(Dir):
		return false, nil
	case !p.may():
		return false, errTouched
	case !p.there:
		return true, unix.Mkdirat(p.parent, p.name, perm|0o700)
	}
	fd, err := beneath.Open(p.parent, p.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	return true, unix.Fchmod(fd, perm|0o700)
}

// takes puts a file that is written into its place, unless that needs no other or
// may not have it. It keeps its time: which of two files is the newer one means
// something to make and the like. A file system that takes no times is no reason to
// leave it out.
func (p *place) takes(f *os.File, sum [sha256.Size]byte, perm uint32, mtime time.Time, put func() error) (bool, error) {
	if p.was != nil && sum == p.was.SHA256 && perm == p.was.Perm {
		return false, nil
	}
	// Writing may have taken a while.
	if err := p.look(); err != nil {
		return false, err
	}
	if !p.may() {
		if p.holds(sum, perm) {
			return false, nil
		}
		return false, errTouched
	}
	if err := unix.Fchmod(int(f.Fd()), perm); err != nil {
		return false, err
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(mtime.UnixNano())}
	_ = unix.UtimesNanoAt(int(f.Fd()), "", times, unix.AT_EMPTY_PATH)
	err := put()
	return err == nil, err
}

// holds says whether a file of that content and mode is there.
func (p *place) holds(sum [sha256.Size]byte, perm uint32) bool {
	fd, err := beneath.Open(p.parent, p.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), p.name)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || beneath.KindOf(st.Mode) != File || st.Mode&0o777 != perm {
		return false
	}
	h := sha256.New()
	_, err = io.Copy(h, io.LimitReader(f, st.Size))
	return err == nil && [sha256.Size]byte(h.Sum(nil)) == sum
}

// replace makes something under a name of its own and then gives it its name.
func (p *place) replace(make func(tmp string) error) error {
	tmp := tempName()
	if err := make(tmp); err != nil {
		return err
	}
	if err := unix.Renameat(p.parent, tmp, p.parent, p.name); err != nil {
		_ = unix.Unlinkat(p.parent, tmp, 0)
		return err
	}
	return nil
}

func tempName() string { return ".toold-" + rand.Text() }
