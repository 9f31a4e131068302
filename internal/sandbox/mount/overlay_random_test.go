package mount

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/thread"
)

// Who is who on the host: the source's owner, and the tool users of a session and of
// its fork.
const (
	sourceUID = 41
	toolUID   = 700000 + sandbox.ToolUID
	forkUID   = 800000 + sandbox.ToolUID
)

// TestOverlayAsPlain: a worktree of mode overlay is what a plain directory would be, for
// random trees, random operations of the tool user, and up to 12 layers of which all but
// the last are frozen; also as a fork sees it, and at each checkpoint. The source stays as
// it was. Half of the trees have hard links, which a copy from a layer below breaks: those
// alone may differ, at names of such a file.
func TestOverlayAsPlain(t *testing.T) {
	needRoot(t)
	trees := testrig.Rounds(200)
	var sum tally
	var mu sync.Mutex // guards sum
	var work sync.WaitGroup
	const atOnce = 8 // they wait for the disk
	for first := range atOnce {
		work.Go(func() {
			for i := first; i < trees; i += atOnce {
				tr := newRandomTree(t, uint64(i), i%2 == 1)
				if err := tr.live(); err != nil {
					t.Errorf("tree %d: %v\n%s", i, err, strings.Join(tr.log, "\n"))
				}
				tr.close()
				mu.Lock()
				sum.add(tr.sum)
				mu.Unlock()
			}
		})
	}
	work.Wait()
	t.Logf("%d trees: %d layers, %d operations (%d succeeded), %d comparisons; differing by hard links: %d of %d trees with links; moves refused for long paths: %d; times of directories from refused moves: %d",
		trees, sum.layers, sum.operations, sum.succeeded, sum.compared, sum.linked, trees/2, sum.long, sum.touched)
	if sum.succeeded*3 < sum.operations || trees >= 100 && sum.linked == 0 {
		t.Errorf("the operations do too little: %+v", sum)
	}
}

type tally struct{ layers, operations, succeeded, compared, linked, long, touched int }

func (t *tally) add(o tally) {
	t.layers += o.layers
	t.operations += o.operations
	t.succeeded += o.succeeded
	t.compared += o.compared
	t.linked += o.linked
	t.long += o.long
	t.touched += o.touched
}

// longest is the path of a directory, in bytes, that an overlay can still move to another
// directory: it notes where the layers below have it, with a slash before, and has this
// much for that. For more it says EXDEV.
var longest = sync.OnceValue(func() int {
	b, err := os.ReadFile("/sys/module/overlay/parameters/redirect_max")
	n, aerr := strconv.Atoi(strings.TrimSpace(string(b)))
	if err := cmp.Or(err, aerr); err != nil {
		panic(err)
	}
	return n - 1
})

// randomTree is a source with layers over it, and a plain directory beside it.
type randomTree struct {
	t       *testing.T
	seed    uint64
	r       *rand.Rand
	links   bool // there are hard links
	dir     string
	source  *os.File
	plain   *os.File
	layers  []*os.File // the uppermost first
	states  []map[string]node
	shared  map[identity]bool   // files of the plain directory that had several names at a checkpoint
	touched map[identity]bool   // directories of it whose overlaid ones have been changed by a refused move
	was     map[identity]string // where it had its directories at the last checkpoint
	over    bool                // it differs, as was to be expected
	log     []string
	sum     tally
}

func newRandomTree(t *testing.T, seed uint64, links bool) *randomTree {
	t.Helper()
	tr := &randomTree{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 7)), links: links, shared: map[identity]bool{}, touched: map[identity]bool{}}
	var err error
	if tr.dir, err = testrig.MkdirTemp("toold-overlay-"); err != nil {
		panic(err)
	}
	tr.source, tr.plain = tr.mkdir("source", sourceUID), tr.mkdir("plain", toolUID)
	return tr
}

func (tr *randomTree) mkdir(name string, uid int) *os.File {
	tr.t.Helper()
	p := filepath.Join(tr.dir, name)
	if err := errors.Join(os.Mkdir(p, 0o755), os.Chown(p, uid, uid)); err != nil {
		panic(err)
	}
	f, err := os.OpenFile(p, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		panic(err)
	}
	return f
}

func (tr *randomTree) close() {
	for _, f := range append(tr.layers, tr.source, tr.plain) {
		f.Close()
	}
	if err := os.RemoveAll(tr.dir); err != nil {
		tr.t.Error(err)
	}
}

// live makes the tree and works in it, layer by layer. The error is what differs.
func (tr *randomTree) live() error {
	first := tr.changes(20+tr.r.IntN(60), tr.plain, nil)
	err := as(sourceUID, func() (errs error) {
		for _, o := range first {
			errs = errors.Join(errs, o.again(tr.source))
		}
		return errs
	})
	if err != nil {
		return err
	}
	before := look(tr.t, tr.source, sourceUID)
	for range 1 + tr.r.IntN(12) {
		tr.sum.layers++
		tr.checkpoint()
		tr.layers = slices.Insert(tr.layers, 0, tr.mkdir("layer"+strconv.Itoa(len(tr.layers)), 0))
		over, err := tr.mount(toolUID, tr.layers[1:], tr.layers[0])
		if err != nil {
			return err
		}
		tr.log = append(tr.log, fmt.Sprintf("layer %d", len(tr.layers)))
		tr.changes(5+tr.r.IntN(40), tr.plain, over)
		if !tr.over {
			err = tr.compare("live", tr.look(), over, toolUID)
		}
		over.Close()
		if err != nil || tr.over {
			return err
		}
	}
	if now := look(tr.t, tr.source, sourceUID); !maps.Equal(now, before) {
		return fmt.Errorf("the source has changed: %s", difference(before, now))
	}
	tr.checkpoint()
	// As a fork of a random checkpoint has it, which may write, and as it is looked at.
	for i := range 2 {
		n := tr.r.IntN(len(tr.states))
		lower, upper := tr.layers[len(tr.layers)-n:], (*os.File)(nil)
		if i == 0 {
			upper = tr.mkdir("fork", 0)
			defer upper.Close()
		}
		over, err := tr.mount(forkUID, lower, upper)
		if err != nil {
			return err
		}
		err = tr.compare(fmt.Sprintf("checkpoint %d", n), tr.states[n], over, forkUID)
		over.Close()
		if err != nil {
			return err
		}
	}
	return tr.welded()
}

// welded makes some layers that follow each other one, over which nothing may change.
func (tr *randomTree) welded() error {
	n := 1 + tr.r.IntN(len(tr.layers))
	lower := tr.layers[len(tr.layers)-n:]
	first := tr.r.IntN(n)
	last := first + 1 + tr.r.IntN(n-first)
	into := tr.mkdir("welded", 0)
	defer into.Close()
	if _, err := Weld(tr.t.Context(), into, lower[first:last]); err != nil {
		return fmt.Errorf("weld layers %d to %d of %d: %w", first, last, n, err)
	}
	over, err := tr.mount(forkUID, slices.Concat(lower[:first], []*os.File{into}, lower[last:]), nil)
	if err != nil {
		return err
	}
	defer over.Close()
	return tr.compare(fmt.Sprintf("checkpoint %d, of which layers %d to %d are one", n, first, last), tr.states[n], over, forkUID)
}

// checkpoint keeps what the plain directory has, and which files have several names.
func (tr *randomTree) checkpoint() {
	state := tr.look()
	tr.states = append(tr.states, state)
	tr.was = map[identity]string{}
	for name, n := range state {
		if n.is == "" {
			panic("the file system of the test tells no files apart")
		}
		if n.links > 1 {
			tr.shared[n.is] = true
		}
		if n.mode&unix.S_IFMT == unix.S_IFDIR {
			tr.was[n.is] = name
		}
	}
}

// look reads the plain directory.
func (tr *randomTree) look() map[string]node {
	nodes := look(tr.t, tr.plain, toolUID)
	for name, n := range nodes {
		n.touched = tr.touched[n.is]
		nodes[name] = n
	}
	return nodes
}

// mount is the worktree that a session has of the layers.
func (tr *randomTree) mount(tool uint32, lower []*os.File, upper *os.File) (*os.File, error) {
	s := Session{Staging: tr.dir, ToolUID: tool, ToolGID: tool, Claim: &sandbox.Claim{Worktree: sandbox.Worktree{
		Source: tr.source, Mode: client.WorktreeOverlay, Target: "/w", UID: sourceUID, GID: sourceUID,
		Overlay: &sandbox.Overlay{Lower: lower, Upper: upper},
	}}}
	d := s.detaching()
	defer d.close()
	return d.layered(source{tr.source, sourceUID, sourceUID}, lower, upper, RenamesRedirect)
}

// compare fails for a difference that hard links do not explain.
func (tr *randomTree) compare(when string, want map[string]node, over *os.File, uid uint32) error {
	tr.sum.compared++
	got := look(tr.t, over, uid)
	for name, n := range got {
		if w := want[name]; w.touched && n.modified == 0 && w.modified != 0 {
			n.modified = w.modified
			got[name] = n
			tr.sum.touched++
		}
	}
	if maps.EqualFunc(want, got, node.same) {
		return nil
	}
	for name := range want {
		if n, ok := got[name]; (!ok || !n.same(want[name])) && tr.shared[want[name].is] {
			tr.over = true
			tr.sum.linked++
			return nil
		}
	}
	return fmt.Errorf("%s: %s", when, difference(want, got))
}

// as calls f with the rights of a user.
func as(uid uint32, f func() error) error {
	_, err := thread.Run(func() (struct{}, error) {
		if err := (thread.User{UID: uid, GID: uid}).Assume(); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, f()
	})
	return err
}

// node is what counts of a file or directory. What only a plain directory can tell is not
// compared.
type node struct {
	mode, uid, gid uint32
	size           int64
	content        [sha256.Size]byte
	link, xattr    string
	modified       int64 // ns, for times that an operation has set

	// Not compared:
	is      identity
	links   uint64
	touched bool
}

// identity tells a file from one that has got its inode. "" is none.
type identity string

func identify(dir int, name string) identity {
	h, _, err := unix.NameToHandleAt(dir, name, 0)
	if err != nil {
		return ""
	}
	return identity(h.Bytes())
}

func (n node) same(m node) bool {
	n.is, n.links, n.touched, m.is, m.links, m.touched = "", 0, false, "", 0, false
	return n == m
}

// look reads a tree; the tool user is shown as 1.
func look(t *testing.T, dir *os.File, tool uint32) map[string]node {
	t.Helper()
	nodes := map[string]node{}
	root := fmt.Sprintf("/proc/self/fd/%d/", dir.Fd())
	err := filepath.WalkDir(root, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return err
		}
		n := node{mode: st.Mode, uid: st.Uid, gid: st.Gid, is: identify(unix.AT_FDCWD, p)}
		for _, id := range []*uint32{&n.uid, &n.gid} {
			if *id == tool {
				*id = 1
			}
		}
		if st.Mtim.Sec < 1e9 {
			n.modified = st.Mtim.Nano()
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			text, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			n.size, n.content = st.Size, sha256.Sum256(text)
		case unix.S_IFLNK:
			n.link, err = os.Readlink(p)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			n.links = uint64(st.Nlink)
		}
		buf := make([]byte, 64)
		if size, err := unix.Lgetxattr(p, "user.test", buf); err == nil {
			n.xattr = string(buf[:size])
		}
		nodes[strings.TrimPrefix(p, root)] = n
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return nodes
}

// difference says where two trees differ.
func difference(want, got map[string]node) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if n, ok := got[name]; !ok {
			list = append(list, fmt.Sprintf("%q is missing", name))
		} else if !n.same(want[name]) {
			list = append(list, fmt.Sprintf("%q is %+v, plainly %+v", name, n, want[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			list = append(list, fmt.Sprintf("%q should not be there", name))
		}
	}
	return strings.Join(list, "; ")
}

// operation is one change.
type operation struct {
	kind     string
	from, to string
	mode     uint32
	text     []byte
	at       int64
	err      error // of the plain directory
}

// changes makes n random changes to the plain directory, and the same ones to over, if
// there is one. It ends early where an operation has another outcome there, which must be
// by a hard link.
func (tr *randomTree) changes(n int, plain, over *os.File) (list []operation) {
	linked := false // an operation was on a file that had several names at a checkpoint
	err := as(toolUID, func() error {
		for range n {
			o := tr.operation(names(plain))
			linked = linked || tr.sharedAt(o.from) || tr.sharedAt(o.to)
			var got error
			if over != nil {
				if got = o.apply(over); errors.Is(got, unix.EXDEV) && tr.tooLong(o) {
					tr.sum.long++ // it is as if nobody had tried
					tr.log = append(tr.log, fmt.Sprintf("%s %q %q is refused", o.kind, o.from, o.to))
					continue
				}
			}
			inPlace := over != nil && tr.inPlace(o)
			o.err = o.apply(plain)
			if inPlace && errors.Is(o.err, unix.ENOTEMPTY) {
				tr.touched[identify(int(plain.Fd()), path.Dir(o.from))] = true
			} else if o.kind == "times" && o.err == nil {
				delete(tr.touched, identify(int(plain.Fd()), o.from))
			}
			tr.log = append(tr.log, fmt.Sprintf("%s %q %q %o %d at %d: %v", o.kind, o.from, o.to, o.mode, len(o.text), o.at, o.err))
			list = append(list, o)
			if tr.sum.operations++; o.err == nil {
				tr.sum.succeeded++
			}
			if over == nil {
				continue
			}
			if err := o.same(got); err != nil && !linked {
				return err
			} else if err != nil {
				tr.sum.linked++
				tr.over = true
				return nil
			}
		}
		return nil
	})
	if err != nil {
		tr.t.Errorf("tree %d: %v\n%s", tr.seed, err, strings.Join(tr.log, "\n"))
	}
	return list
}

// sharedAt reports whether a name in the plain directory is of a shared file.
func (tr *randomTree) sharedAt(name string) bool {
	return tr.shared[identify(int(tr.plain.Fd()), name)]
}

// tooLong reports whether an operation, which is still to come, moves a directory to another
// one whose path in the layers below is too long to be noted.
func (tr *randomTree) tooLong(o operation) bool {
	moved := []string{o.from}
	if o.kind == "exchange" {
		moved = append(moved, o.to)
	}
	return path.Dir(o.from) != path.Dir(o.to) && slices.ContainsFunc(moved, func(name string) bool {
		return len(tr.was[identify(int(tr.plain.Fd()), name)]) > longest()
	})
}

// inPlace reports whether an operation, which is still to come, moves a directory from where
// layers below have something to where there is one that is only in the uppermost. The overlay
// then leaves it to ext4 to put a whiteout there, and to see that the other one is not empty.
// ext4 does the first first, and takes it back, but for the time of that directory's change.
func (tr *randomTree) inPlace(o operation) bool {
	fd := int(tr.plain.Fd())
	parent, merged := tr.was[identify(fd, path.Dir(o.from))]
	_, old := tr.states[len(tr.states)-1][path.Join(parent, path.Base(o.from))]
	_, below := tr.was[identify(fd, o.to)]
	return o.kind == "rename" && merged && old && !below
}

// again makes the change in another directory, and fails where its outcome is another one.
func (o *operation) again(dir *os.File) error { return o.same(o.apply(dir)) }

// same fails where the outcome in another directory is another one.
func (o *operation) same(err error) error {
	if errors.Is(err, o.err) { // also where both are nil
		return nil
	}
	return fmt.Errorf("%s %q %q: %w, plainly %w", o.kind, o.from, o.to, cmp.Or(err, error(unix.Errno(0))), cmp.Or(o.err, error(unix.Errno(0))))
}

// names are all that is in a tree, "" first.
func names(dir *os.File) (list []string) {
	root := fmt.Sprintf("/proc/thread-self/fd/%d/", dir.Fd())
	_ = filepath.WalkDir(root, func(p string, _ fs.DirEntry, err error) error {
		list = append(list, strings.TrimPrefix(p, root))
		return nil
	})
	return list
}

// strange are names that mean something to somebody.
var strange = []string{"x y", "\xff", "é", ".wh.a", ".wh..wh..opq", "-", "a\nb", "trusted.overlay.redirect", strings.Repeat("n", 255)}

// operation is a random one on a tree with these names.
func (tr *randomTree) operation(names []string) operation {
	r := tr.r
	there := func() string { return names[min(len(names)-1, 1+r.IntN(len(names)))] } // "" alone in an empty tree
	fresh := func() string {
		name := string(rune('a' + r.IntN(6)))
		if r.IntN(12) == 0 {
			name = strange[r.IntN(len(strange))]
		}
		return path.Join(names[r.IntN(len(names))], name)
	}
	any := func() string {
		if r.IntN(3) == 0 {
			return fresh()
		}
		return there()
	}
	kinds := []string{
		"rename", "rename", "rename", "rename", "exchange", "noreplace", "mkdir", "mkdir", "mkdir", "mkdir", "mkdir", "unlink", "rmdir", "remove", "directory", "file",
		"symlink", "chmod", "truncate", "write", "write", "write", "write", "append", "append", "times", "xattr", "fifo", "held",
	}
	if tr.links {
		kinds = append(kinds, "link", "link")
	}
	o := operation{kind: kinds[r.IntN(len(kinds))], from: there(), to: any()}
	switch o.kind {
	case "mkdir", "symlink", "fifo":
		o.from = fresh()
	case "chmod":
		if r.IntN(4) == 0 {
			o.from = "."
		}
	case "xattr":
		if o.from == "" { // the root has those of the layer alone
			o.from = "none"
		}
	case "write":
		if o.from = fresh(); r.IntN(3) == 0 {
			o.from = there()
		}
	case "rename", "noreplace", "link", "held":
		if r.IntN(3) > 0 {
			o.to = fresh()
		}
	}
	o.mode = []uint32{0o755, 0o755, 0o700, 0o644, 0o555, 0o2755, 0o1777, 0o4755, 0o600}[r.IntN(9)]
	o.text = []byte(strings.Repeat(strconv.Itoa(r.IntN(1000)), r.IntN(2000)))
	o.at = int64(r.IntN(10000))
	return o
}

// apply makes the change below dir.
func (o *operation) apply(dir *os.File) error {
	fd := int(dir.Fd())
	whole := fmt.Sprintf("/proc/thread-self/fd/%d/%s", fd, o.from)
	switch o.kind {
	case "rename":
		return unix.Renameat2(fd, o.from, fd, o.to, 0)
	case "exchange":
		return unix.Renameat2(fd, o.from, fd, o.to, unix.RENAME_EXCHANGE)
	case "noreplace":
		return unix.Renameat2(fd, o.from, fd, o.to, unix.RENAME_NOREPLACE)
	case "mkdir":
		return unix.Mkdirat(fd, o.from, o.mode&0o777|0o300)
	case "unlink":
		return unix.Unlinkat(fd, o.from, 0)
	case "rmdir":
		return unix.Unlinkat(fd, o.from, unix.AT_REMOVEDIR)
	case "remove":
		return removeTree(dir, o.from)
	case "directory": // another one in its place
		if err := removeTree(dir, o.from); err != nil {
			return err
		}
		if err := unix.Mkdirat(fd, o.from, 0o755); err != nil {
			return err
		}
		return o.write(fd, path.Join(o.from, "a"), unix.O_CREAT|unix.O_EXCL, 0)
	case "file": // in the place of what was there
		if err := removeTree(dir, o.from); err != nil {
			return err
		}
		return o.write(fd, o.from, unix.O_CREAT|unix.O_EXCL, 0)
	case "link":
		return unix.Linkat(fd, o.from, fd, o.to, 0)
	case "symlink":
		return unix.Symlinkat(cmp.Or(o.to, "."), fd, o.from)
	case "chmod":
		return unix.Fchmodat(fd, o.from, o.mode|0o500, 0)
	case "truncate":
		f, err := openFile(fd, o.from, unix.O_WRONLY)
		if err != nil {
			return err
		}
		return errors.Join(unix.Ftruncate(f, o.at), unix.Close(f))
	case "write":
		return o.write(fd, o.from, unix.O_CREAT, o.at)
	case "append":
		return o.write(fd, o.from, unix.O_APPEND, 0)
	case "times":
		when := unix.NsecToTimespec(o.at * 1e9)
		return unix.UtimesNanoAt(fd, o.from, []unix.Timespec{when, when}, unix.AT_SYMLINK_NOFOLLOW)
	case "xattr":
		if o.at%4 == 0 {
			return unix.Lremovexattr(whole, "user.test")
		}
		return unix.Lsetxattr(whole, "user.test", o.text[:min(len(o.text), 60)], 0)
	case "fifo":
		return unix.Mknodat(fd, o.from, unix.S_IFIFO|0o644, 0)
	case "held": // written to after it was renamed
		f, err := openFile(fd, o.from, unix.O_RDWR)
		if err != nil {
			return err
		}
		err = unix.Renameat2(fd, o.from, fd, o.to, 0)
		_, werr := unix.Write(f, o.text)
		return cmp.Or(err, werr, unix.Close(f))
	}
	panic(o.kind)
}

// openFile opens no FIFO: whether one has a reader is for the processes to say that other
// trees start.
func openFile(dir int, name string, flags int) (int, error) {
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
		return -1, unix.ENXIO
	}
	return unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
}

// write writes the text into a file, from an offset on, which may leave a hole.
func (o *operation) write(dir int, name string, flags int, at int64) error {
	f, err := openFile(dir, name, unix.O_WRONLY|flags)
	if err != nil {
		return err
	}
	if flags&unix.O_APPEND != 0 {
		_, err = unix.Write(f, o.text)
	} else {
		_, err = unix.Pwrite(f, o.text, at)
	}
	return cmp.Or(err, unix.Close(f))
}

// removeTree removes what has this name, in the order of names, up to the first error.
func removeTree(dir *os.File, name string) error {
	fd := int(dir.Fd())
	err := unix.Unlinkat(fd, name, 0)
	if !errors.Is(err, unix.EISDIR) {
		return err
	}
	entries, err := os.ReadDir(fmt.Sprintf("/proc/thread-self/fd/%d/%s", fd, name))
	if err != nil {
		var errno unix.Errno
		errors.As(err, &errno)
		return errno
	}
	for _, e := range entries {
		if err := removeTree(dir, path.Join(name, e.Name())); err != nil {
			return err
		}
	}
	return unix.Unlinkat(fd, name, unix.AT_REMOVEDIR)
}
