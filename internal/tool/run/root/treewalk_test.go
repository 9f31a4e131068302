package root

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A tree is walked and written by descriptors, one name at a time.
func TestDir(t *testing.T) {
	r, dir := newRoot(t)
	put(t, dir+"/a", "one")
	put(t, dir+"/b", "two")
	ctx := t.Context()
	d, err := r.OpenDir(ctx, "/")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	must("mkdir", d.Mkdir(ctx, "d", 0o750))
	must("fifo", d.Mknod(ctx, "fifo", KindFIFO, 0o600))
	must("link", d.Symlink(ctx, "a", "l"))
	must("chmod", d.Chmod(ctx, "a", 0o600))
	if to, err := d.Readlink(ctx, "l"); to != "a" || err != nil {
		t.Errorf("%q, %v", to, err)
	}
	if mode, err := d.Mode(ctx); mode == 0 || err != nil {
		t.Errorf("%o, %v", mode, err)
	}
	f, err := d.Open(ctx, "b")
	if err != nil {
		t.Fatal(err)
	}
	must("put", d.Put(ctx, "a", f))
	must("close", f.Close())
	if got, err := os.ReadFile(dir + "/a"); string(got) != "two" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	nodes, more, err := d.List(ctx, "a", 3)
	if err != nil || !more || len(nodes) != 3 || nodes[0].Name != "b" || nodes[1].Kind != KindDir || nodes[1].Mode != 0o750 || nodes[2].Kind != KindFIFO {
		t.Errorf("%+v, %t, %v", nodes, more, err)
	}
	below, err := d.Dir(ctx, "d")
	if err != nil {
		t.Fatal(err)
	}
	below.Close()
	if _, err := d.Dir(ctx, "l"); err == nil {
		t.Error("a link was entered")
	}
	if _, err := d.Open(ctx, "fifo"); CodeOf(err) != NotRegular {
		t.Errorf("a FIFO was opened: %v", err)
	}
	must("remove", d.Remove(ctx, "d", true))
	must("remove", d.Remove(ctx, "l", false))
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	again, err := r.OpenDirFD(ctx, fd, "base")
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestAppendedAndLink(t *testing.T) {
	r, dir := newRoot(t)
	p, err := r.Begin(t.Context(), "/new", BeginOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Append(t.Context(), []byte("one ")); err != nil {
		t.Fatal(err)
	}
	mode := fs.FileMode(0o640)
	done, err := p.Commit(t.Context(), []byte("two"), CommitOptions{Durable: true, Mode: &mode})
	p.Close()
	if got, _ := os.ReadFile(dir + "/new"); err != nil || string(got) != "one two" || done.Info.Mode != 0o640 {
		t.Errorf("%q, %+v, %v", got, done, err)
	}
	link(t, "new", dir+"/l")
	if p, err = r.Begin(t.Context(), "/l", BeginOptions{OverLink: true}); err != nil {
		t.Fatal(err)
	}
	_, err = p.Commit(t.Context(), []byte("own"), CommitOptions{})
	p.Close()
	if info, statErr := os.Lstat(dir + "/l"); err != nil || statErr != nil || !info.Mode().IsRegular() {
		t.Errorf("%v, %v", err, statErr)
	}
}

func TestReserveAndLend(t *testing.T) {
	r, dir := newRoot(t)
	put(t, dir+"/a", "one")
	held, err := r.Reserve(t.Context(), 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	held.Shrink(1)
	held.Release()
	held.Release()
	ran := false
	if err := r.Lend(t.Context(), func() {
		info, err := r.Lstat(t.Context(), "/a")
		ran = err == nil && info.Size == 3
	}); err != nil || !ran {
		t.Errorf("%t, %v", ran, err)
	}
}

func TestEntries(t *testing.T) {
	r, dir := newRoot(t)
	ctx := t.Context()
	put(t, dir+"/f", "x")
	made, err := r.MakeDir(ctx, "/d/e", 0o700)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.SetMode(ctx, made, 0o711); err != nil {
		t.Error(err)
	}
	for range 2 { // over nothing, and over the one before
		if err := r.PutLink(ctx, "/d/l", "../f"); err != nil {
			t.Error(err)
		}
	}
	if info, to, err := r.Peek(ctx, "/d/l"); err != nil || to != "../f" || info.Kind != KindSymlink {
		t.Errorf("%+v, %q, %v", info, to, err)
	}
	if _, _, err := r.Peek(ctx, "/none/l"); err == nil {
		t.Error("something is below nothing")
	}
	if info, err := os.Stat(dir + "/d/e"); err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("%v, %v", info, err)
	}
}

// Names that somebody else knows are looked at one by one, without a list.
func TestDirLook(t *testing.T) {
	t.Parallel()
	r, dir := newRoot(t)
	put(t, dir+"/a", "one")
	put(t, dir+"/b", "two")
	ctx := t.Context()
	d, err := r.OpenDir(ctx, "/")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	long := strings.Repeat("n", 256)
	nodes, err := d.Look(ctx, []string{"a", "none", "b", long})
	if err != nil || len(nodes) != 3 || nodes[0].Name != "a" || nodes[0].Size != 3 || nodes[1].Name != "b" || nodes[2].Kind != KindUnknown {
		t.Errorf("%+v, %v", nodes, err)
	}
	ended, end := context.WithCancel(ctx)
	end()
	if nodes, err := d.Look(ended, []string{"a"}); CodeOf(err) != Aborted {
		t.Errorf("%+v, %v", nodes, err)
	}
	// Between a list and a look one was removed, and another came back.
	left, err := d.there(ctx, []Entry{{Name: "a"}, {Name: "b"}, {Name: "none"}}, []Node{nodes[0], {}, {}})
	if err != nil || len(left) != 2 || left[0].Name != "a" || left[1].Name != "b" || left[1].Kind != KindFile {
		t.Errorf("%+v, %v", left, err)
	}
	if _, err := d.there(ended, nil, nil); CodeOf(err) != Aborted {
		t.Error(err)
	}
}

// The data of a file and its attributes are read without moving what Read reads.
func TestFileParts(t *testing.T) {
	t.Parallel()
	r, dir := newRoot(t)
	put(t, dir+"/f", "some text")
	ctx := t.Context()
	d, err := r.OpenDir(ctx, "/")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	f, err := d.Open(ctx, "f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if begin, end, err := f.Extent(ctx, 0); begin != 0 || end != 9 || err != nil {
		t.Errorf("%d, %d, %v", begin, end, err)
	}
	if begin, end, err := f.Extent(ctx, 9); begin != 9 || end != 9 || err != nil {
		t.Errorf("behind its end: %d, %d, %v", begin, end, err)
	}
	part := make([]byte, 4)
	if n, err := f.ReadAt(ctx, part, 5); string(part[:n]) != "text" || err != nil {
		t.Errorf("%q, %v", part[:n], err)
	}
	if n, err := f.ReadAt(ctx, part, 7); string(part[:n]) != "xt" || err == nil {
		t.Errorf("%q, %v", part[:n], err)
	}
	if all, err := io.ReadAll(f); string(all) != "some text" || err != nil {
		t.Errorf("%q, %v", all, err)
	}
	if all, left, err := d.Attributes(ctx, "f", 100); len(all) != 0 || left != 0 || err != nil {
		t.Errorf("%v, %d, %v", all, left, err)
	}
	for name, value := range map[string]string{"user.a": "1", "user.b": strings.Repeat("2", 200)} {
		if err := unix.Setxattr(dir+"/f", name, []byte(value), 0); errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPERM) {
			t.Skip("this file system has no attributes")
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if all, left, err := d.Attributes(ctx, "f", 100); !maps.Equal(all, Attributes{"user.a": "1"}) || left != 1 || err != nil {
		t.Errorf("%v, %d, %v", all, left, err)
	}
	if _, _, err := d.Attributes(ctx, "none", 100); err == nil {
		t.Error("what is not there has attributes")
	}
}
