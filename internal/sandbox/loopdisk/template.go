package loopdisk

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/sandbox/inside"
	"github.com/toold/toold/internal/sandbox/state"
)

// maxTemplates is how many made file systems are kept, one for each size that
// sessions ask for: copying one takes a tenth of the time of making one.
const maxTemplates = 4

const (
	templatePrefix = "disk-"
	newTemplate    = state.NewPrefix + "template" // one that is being made
)

// kind is what a file system is made with, beside what all have.
type kind struct {
	suffix string // of templates
	args   []string
}

var (
	// ephemeral has no journal: nothing in it outlives its only mount.
	ephemeral = kind{"", []string{"-O", "none," + features}}
	// lasting has the smallest that there is, and a reserve.
	lasting = kind{"-journal", []string{"-O", "none,has_journal," + features, "-J", "size=4"}}
)

const features = "extent,filetype,dir_index,sparse_super,large_file,huge_file,dir_nlink,extra_isize,ext_attr,flex_bg,64bit,metadata_csum"

// fill copies an empty file system into an empty file.
func fill(file *os.File, dir string, k kind, size client.Size) error {
	made, err := template(dir, k, size)
	if err != nil {
		return err
	}
	defer made.Close()
	if err := copySparse(file, made); err != nil {
		return fmt.Errorf("copy %s: %w", made.Name(), err)
	}
	return nil
}

// template opens the made file system of this kind and size, and makes it first where
// there is none.
func template(dir string, k kind, size client.Size) (*os.File, error) {
	name := filepath.Join(dir, templatePrefix+strconv.FormatInt(int64(size), 10)+k.suffix)
	if f, err := os.Open(name); !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	mkfs, err := findMkfs()
	if err != nil {
		return nil, err
	}
	lock, err := state.Lock(dir, unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if f, err := os.Open(name); !errors.Is(err, fs.ErrNotExist) {
		return f, err // somebody was quicker
	}
	// Each has a name of its own: a daemon that was killed may have left an mke2fs that
	// still writes to its one.
	if err := beneath.RemoveMatching(filepath.Join(dir, newTemplate+"*"), ""); err != nil {
		return nil, err
	}
	tmp := filepath.Join(dir, newTemplate+"-"+rand.Text())
	defer os.Remove(tmp) // of no effect after the rename
	if err := makeExt4(mkfs, tmp, k, size); err != nil {
		return nil, err
	}
	if k.suffix == lasting.suffix {
		if err := addReserve(tmp); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(pruneTemplates(dir), os.Rename(tmp, name)); err != nil {
		return nil, err
	}
	return os.Open(name)
}

// pruneTemplates makes room for one more.
func pruneTemplates(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var all []fs.FileInfo
	for _, e := range entries {
		fi, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), templatePrefix) {
			all = append(all, fi)
		}
	}
	slices.SortFunc(all, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for len(all) >= maxTemplates {
		if err := os.Remove(filepath.Join(dir, all[0].Name())); err != nil {
			return err
		}
		all = all[1:]
	}
	return nil
}

// findMkfs finds the program that makes ext4, also where PATH has no sbin.
func findMkfs() (string, error) {
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/bin", "/usr/local/sbin"} {
		p := filepath.Join(dir, "mke2fs")
		if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() {
			return p, nil
		}
	}
	return "", fmt.Errorf("%w: mke2fs is not installed", ErrNone)
}

// makeExt4 makes a sparse file with an ext4 in which nothing is kept for root. What the
// host's mke2fs.conf says has no part in it.
func makeExt4(mkfs, path string, k kind, size client.Size) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(int64(size)), f.Close()); err != nil {
		return err
	}
	args := append([]string{
		"-q", "-F", "-t", "ext4", "-b", strconv.Itoa(block), "-I", "256", "-m", "0",
		"-N", strconv.FormatInt(inside.Inodes(size), 10), "-E", "lazy_itable_init=1,nodiscard",
	}, k.args...)
	cmd := exec.Command(mkfs, append(args, path)...)
	cmd.Env = []string{"MKE2FS_CONFIG=/dev/null", "LC_ALL=C"}
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", mkfs, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// copySparse copies what is not a hole.
func copySparse(to, from *os.File) error {
	fi, err := from.Stat()
	if err != nil {
		return err
	}
	if err := to.Truncate(fi.Size()); err != nil {
		return err
	}
	for at := int64(0); ; {
		start, err := unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // nothing but a hole to the end
		} else if err != nil {
			return err
		}
		if at, err = unix.Seek(int(from.Fd()), start, unix.SEEK_HOLE); err != nil {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(to, start), io.NewSectionReader(from, start, at-start)); err != nil {
			return err
		}
	}
}
