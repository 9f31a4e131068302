package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/tool/run/root"
	"github.com/toold/toold/internal/tool/run/treetar"
)

// treeMost bounds nothing: the daemon has the bound of what it takes and sends.
const treeMost = 1 << 50

// treeCopy is one cp -r.
type treeCopy struct {
	a       *app
	c       *client.Client
	session string
	moved   func(bytes int64) // says how far it is
}

// contents reports whether a path stands for what is in a directory and not for it: the
// directory has no name of its own then, or is followed by "/.".
func contents(p string) bool {
	return p == "" || p == "." || p == ".." || strings.HasSuffix(p, "/.") || strings.HasSuffix(p, "/..") || strings.Trim(p, "/") == ""
}

// in sends a local directory, or a tar from standard input.
func (t *treeCopy) in(ctx context.Context, from, to string) error {
	if from == "-" {
		call, err := t.put(ctx, cmp.Or(to, "."), t.a.stdin)
		return t.sent(call, err, to, from, nil)
	}
	if (to == "" || strings.HasSuffix(to, "/")) && !contents(from) {
		to += filepath.Base(from)
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory: copy it without -r", from)
	}
	r, err := root.New(root.Config{Dir: from, UID: -1, GID: -1})
	if err != nil {
		return err
	}
	defer r.Close()
	out, in := io.Pipe()
	p := &treetar.Packer{Root: r, Top: "/", Out: in, Most: treeMost}
	packed := make(chan error, 1)
	go func() {
		err := p.Pack(ctx)
		in.CloseWithError(err) // nil is io.EOF
		packed <- err
	}()
	call, err := t.put(ctx, cmp.Or(to, "."), out)
	_ = out.CloseWithError(errLeft)
	if perr := <-packed; perr != nil && !errors.Is(perr, errLeft) && ctx.Err() == nil {
		return fmt.Errorf("read %s: %w; what was sent until then stays in the session", from, perr)
	}
	return t.sent(call, err, to, from, &p.Count)
}

// errLeft ends the packing of what nobody takes any more.
var errLeft = errors.New("the session took no more")

func (t *treeCopy) tree(dir string) client.Tree {
	return client.Tree{Client: t.c, Session: t.session, Dir: dir}
}

func (t *treeCopy) put(ctx context.Context, dir string, from io.Reader) (*client.Call, error) {
	return t.tree(dir).Put(ctx, &countedReader{from: from, tell: t.moved})
}

// sent says what became of what was sent; local is what could not be read of from here.
func (t *treeCopy) sent(call *client.Call, err error, to, from string, local *treetar.Count) error {
	if err != nil {
		return fmt.Errorf("copy to %s: %w", cmp.Or(to, "."), err)
	}
	if err := transferResult(call, cmp.Or(to, ".")); err != nil {
		return err
	}
	t.notes(call)
	return t.counted(from, "be read", local)
}

// notes shows what a call says beside what it has done.
func (t *treeCopy) notes(call *client.Call) {
	for text := range strings.SplitSeq(call.Output, "\n") {
		if strings.HasPrefix(text, "(") {
			t.a.say("%s", text)
		}
	}
}

// counted shows what was not copied on this side, below dir, and fails where there is
// anything that should have been.
func (t *treeCopy) counted(dir, verb string, c *treetar.Count) error {
	if c == nil {
		return nil
	}
	for _, n := range c.Notes(verb) {
		t.a.say("%s: %s", dir, n)
	}
	if c.Failed.N > 0 {
		return fmt.Errorf("%s: not everything was copied", dir)
	}
	return nil
}

// out fetches a directory of the session, or a tar of it to standard output.
func (t *treeCopy) out(ctx context.Context, from, to string) error {
	if to == "-" && t.a.outTTY {
		return usagef("standard output is a terminal: send the archive to a file or a program, as in \"toolctl cp -r %s:%s - | tar -t\"", t.session, from)
	}
	r, id, err := t.tree(cmp.Or(from, ".")).Get(ctx)
	if err != nil {
		return fmt.Errorf("copy %s: %w", cmp.Or(from, "."), err)
	}
	defer r.Close()
	body := &countedReader{from: r, tell: t.moved}
	var got *treetar.Count
	if to == "-" {
		_, err = io.Copy(t.a.stdout, body)
	} else {
		got, err = unpackLocal(ctx, body, from, to)
	}
	return t.received(ctx, id, cmp.Or(from, "."), to, err, got)
}

// received says what became of what was fetched, by the call that has packed it as well.
func (t *treeCopy) received(ctx context.Context, id, from, to string, err error, local *treetar.Count) error {
	call, cerr := t.c.GetCall(ctx, id)
	if err != nil {
		if local != nil {
			t.a.say("%s", local.Text("wrote")+" before that")
		}
		if cerr == nil && call.Error != nil {
			err = call.Error
		} else if cerr == nil && call.IsError {
			err = errors.New(call.Output)
		}
		return fmt.Errorf("copy %s: %w", from, err)
	}
	if cerr != nil {
		return fmt.Errorf("copy %s: all that came was written, but not whether that is all: %w", from, cerr)
	}
	t.notes(call)
	if err := t.counted(to, "be written", local); err != nil {
		return err
	}
	for _, missing := range []string{"left_out", "failed"} {
		if n, ok := call.Metadata[missing].(float64); ok && n > 0 {
			return fmt.Errorf("copy %s: not everything was copied", from)
		}
	}
	return nil
}

// unpackLocal unpacks what a session sends. Nothing of it is trusted: it is written below
// the directory alone, through no link, without holes and hard links, which would make more
// of it than came, and as the umask has it.
func unpackLocal(ctx context.Context, in io.Reader, from, to string) (*treetar.Count, error) {
	dir, top, err := localDir(to, from)
	if err != nil {
		return nil, err
	}
	return unpackBelow(ctx, in, dir, top, nil)
}

// unpackIn unpacks a tree of a session below a directory that is made for it, following no link out of in.
func unpackIn(ctx context.Context, r io.Reader, in *os.Root, at, dir string, leaves func(at string, e *treetar.Entry) bool) (*treetar.Count, error) {
	if err := in.MkdirAll(path.Join(at, dir), 0o777); err != nil {
		return nil, err
	}
	f, err := in.Open(at)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return unpackBelow(ctx, r, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), path.Join("/", dir), leaves)
}

// unpackBelow unpacks into top of the directory dir, without what leaves says.
func unpackBelow(ctx context.Context, in io.Reader, dir, top string, leaves func(at string, e *treetar.Entry) bool) (*treetar.Count, error) {
	r, err := root.New(root.Config{Dir: dir, UID: -1, GID: -1})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	umask := unix.Umask(0o077)
	unix.Umask(umask)
	u := &treetar.Unpacker{Root: r, Top: top, In: in, Most: treeMost, Plain: true, Umask: fs.FileMode(umask), Leaves: leaves}
	return &u.Count, u.Unpack(ctx)
}

// localDir is where a directory from a session goes: top in the directory dir, which
// exists. In one that is there already it has the name that it has in the session.
func localDir(to, remote string) (dir, top string, err error) {
	info, err := os.Stat(to)
	there := err == nil && info.IsDir()
	switch {
	case err == nil && !there:
		return "", "", fmt.Errorf("%s exists and is not a directory: nothing was copied", to)
	case there && contents(remote):
		return to, "/", nil
	case there:
		return to, "/" + path.Base(remote), nil
	case strings.HasSuffix(to, "/") && !contents(remote):
		return "", "", fmt.Errorf("%s does not exist: make it, or leave the slash out to give the directory this name", to)
	}
	to = filepath.Clean(to)
	return filepath.Dir(to), "/" + filepath.Base(to), nil
}
