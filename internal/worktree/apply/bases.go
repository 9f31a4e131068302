package apply

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/toold/toold/internal/beneath"
)

// A base is what a session began with at a path. A file of the source that has not changed
// since is that, and is kept in the session's private directory: when a call has written to
// it (Look.Keep), and when a job of another session is about to replace or remove it. All of
// a path are equal. It is a file, with a line of JSON that tells whether it is whole and the content,
// or a part of a pack. A note says of a path that has none what else is known.
const (
	baseDir  = "base"
	noteName = "notes"
	maxNotes = 16 << 20 // bytes
)

// maxBases is how many bytes of bases a job keeps, for all sessions together.
const maxBases = 256 << 20

// baseHead is the first line of a base.
type baseHead struct {
	Perm uint32 `json:"perm"`
	Sum  raw    `json:"sum"`
	// File is which one it was; zero in bases of earlier versions.
	File which `json:"file,omitzero"`
}

// which tells a file, as it is, from others and from itself when it has changed, whatever the clock says.
type which struct {
	Inode uint64 `json:"inode"`
	Size  int64  `json:"size"`
	MTime int64  `json:"mtime"` // ns, as CTime
	CTime int64  `json:"ctime"`
}

// differs reports whether a file of the source is not what was kept of it. Only what may be another one, or has
// changed, is asked for its content's sum.
func (h baseHead) differs(now version, sum func() (raw, error)) bool {
	switch {
	case h.Sum == "":
		return false // nothing was kept
	case now.Kind != beneath.File || now.Perm != h.Perm:
		return true
	case now.which == h.File:
		return false
	case now.Size > maxMerge || h.File != which{} && now.Size != h.File.Size:
		return true
	}
	is, err := sum()
	return err != nil || is != h.Sum
}

// heads says what was kept of files, at those of these paths that no job has written.
func (d *state) heads(b *bases, n int, path func(int) string, all map[string]own) map[string]baseHead {
	heads := make(map[string]baseHead)
	for i := range n {
		p := path(i)
		if _, wrote := all[p]; !wrote && b.file(p) {
			heads[p] = d.head(b, p)
		}
	}
	return heads
}

func (d *state) head(b *bases, path string) (h baseHead) {
	if p, ok := b.pack(path); ok {
		return p.baseHead
	}
	f, err := os.Open(d.path(baseName(path, b.since)))
	if err != nil {
		return h
	}
	defer f.Close()
	line, err := bufio.NewReaderSize(f, 512).ReadSlice('\n')
	if err != nil || json.Unmarshal(line, &h) != nil {
		return baseHead{} // a crash has cut it
	}
	return h
}

// baseName is the file of a path for a session that began then.
func baseName(path string, since int64) string {
	sum := sha256.Sum256([]byte(path))
	return fmt.Sprintf("%s/%s-%d", baseDir, hex.EncodeToString(sum[:]), since)
}

// began says whether the session began with a file that has that change time.
func (o Other) began(ctime int64) bool { return ctime <= o.Since-o.Back }

// share keeps what is about to be replaced for others that began with it. A base that
// cannot be kept is none: those have a conflict then.
func (s *survey) share() {
	room := int64(maxBases)
	for _, c := range s.changes {
		if c.left != chosen || c.done || !c.kept || c.now.Kind != beneath.File {
			continue
		}
		for _, o := range s.job.Others {
			if room -= c.now.Size; room >= 0 && o.began(c.now.CTime) && s.spool.room(c.now.Size) == nil {
				_ = o.keep(c, io.NewSectionReader(s.spool.f, c.ours, c.now.Size))
				step("base kept")
			}
		}
	}
}

// keep keeps a base, if there is none.
func (o Other) keep(c *change, content io.Reader) error {
	return keepBase(filepath.Join(o.Dir, baseName(c.path, o.Since)), baseHead{c.now.Perm, c.now.Sum, c.now.which}, content)
}

func keepBase(name string, head baseHead, content io.Reader) error {
	if _, err := os.Lstat(name); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), newSuffix)
	if err != nil {
		return err
	}
	err = json.NewEncoder(f).Encode(head)
	if err == nil {
		_, err = io.Copy(f, content)
	}
	// Not synced: after a crash the sum tells.
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// readBase gives what a session began with at a path; errNoBase where that is not known.
func (d *state) readBase(b *bases, path string) (content []byte, perm uint32, err error) {
	if p, ok := b.pack(path); ok {
		content, err = d.content(p)
		return content, p.Perm, err
	}
	all, err := os.ReadFile(d.path(baseName(path, b.since)))
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, errNoBase
	}
	if err != nil {
		return nil, 0, err
	}
	line, content, _ := bytes.Cut(all, []byte{'\n'})
	var head baseHead
	if json.Unmarshal(line, &head) != nil || string(head.Sum) != sumOf(string(content)) {
		return nil, 0, errNoBase
	}
	return content, head.Perm, nil
}

// Noted is what is known of a path without a base.
type Noted struct {
	Is What `json:"is"`
	// Perm are the permissions of a directory.
	Perm uint32 `json:"perm,omitempty"`
	// Handle is that of a directory, as beneath.Handle; "" where none is known.
	Handle raw `json:"handle,omitempty"`
}

// What says what a session began with at a path.
type What string

// What is noted.
const (
	// Nothing: there was nothing.
	Nothing What = "nothing"
	// Gone: a file, that was removed from the source before anybody kept it.
	Gone What = "gone"
	// Some: a file or link of which nothing is kept.
	Some What = "some"
	// Dir: a directory.
	Dir What = "dir"
	// Mode: a directory, if it began with something; the permissions are known alone.
	Mode What = "mode"
)

// note is a line of the notes: the CRC-32 of its JSON in hex, a blank, and that. Older versions
// wrote the JSON alone. What is damaged is no note.
type note struct {
	Path raw `json:"path"`
	Noted
}

func (n note) line() []byte {
	text, _ := json.Marshal(n) // never fails for such
	return fmt.Appendf(nil, "%08x %s\n", crc32.ChecksumIEEE(text), text)
}

func (n *note) read(line []byte) (ok bool) {
	if len(line) > 0 && line[0] != '{' {
		sum, text, _ := bytes.Cut(line, []byte{' '})
		if string(sum) != fmt.Sprintf("%08x", crc32.ChecksumIEEE(text)) {
			return false
		}
		line = text
	}
	return json.Unmarshal(line, n) == nil && n.Path != "" && slices.Contains([]What{Nothing, Gone, Some, Dir, Mode}, n.Is)
}

func (d *state) notes(since int64) string {
	return d.path(fmt.Sprintf("%s/%s-%d", baseDir, noteName, since))
}

// addNotes appends to the notes, up to maxNotes. It tells how many are left out: of these nothing
// is known.
func (d *state) addNotes(since int64, notes map[string]Noted, room func(bytes int64) error) (left int, err error) {
	if len(notes) == 0 {
		return 0, nil
	}
	if err := os.MkdirAll(d.path(baseDir), 0o700); err != nil {
		return 0, err
	}
	f, err := os.OpenFile(d.notes(since), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	lines := []byte{'\n'} // what a crash has cut is a line by itself
	for _, path := range slices.Sorted(maps.Keys(notes)) {
		line := note{raw(path), notes[path]}.line()
		if st.Size()+int64(len(lines)+len(line)) > maxNotes {
			left++
			continue
		}
		lines = append(lines, line...)
	}
	if left == len(notes) {
		return left, nil
	}
	if room != nil {
		err = room(int64(len(lines)))
	}
	if err == nil {
		_, err = f.Write(lines)
	}
	return left, err
}

// readNotes reads the notes of a session that began then, and tells of how many lines nothing
// can be said, because they are damaged. The first note of a path counts. What is behind
// maxNotes is unknown.
func (d *state) readNotes(since int64) (all map[string]Noted, damaged int, err error) {
	all = make(map[string]Noted)
	f, err := os.Open(d.notes(since))
	if errors.Is(err, os.ErrNotExist) {
		return all, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	in := bufio.NewReaderSize(io.LimitReader(f, maxNotes), 4*beneath.MaxPath)
	for {
		line, long, err := in.ReadLine()
		for more := long; more && err == nil; {
			_, more, err = in.ReadLine()
		}
		if errors.Is(err, io.EOF) && !long {
			return all, damaged, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, damaged, err
		}
		var n note
		switch {
		case len(line) == 0:
		case long || !n.read(line):
			damaged++
		default:
			if _, known := all[string(n.Path)]; !known {
				all[string(n.Path)] = n.Noted
			}
		}
	}
}

// bases are the names of all bases in a private directory, and the notes of a session. Who
// has the ids of a source's owner cannot look into it.
type bases struct {
	since  int64
	names  map[string]bool
	packed func() map[string]packed // by path: mostly nobody asks; nil for none
	notes  map[string]Noted
}

func (d *state) bases(since int64) (bases, error) {
	notes, _, err := d.readNotes(since)
	dir, more := os.Open(d.path(baseDir))
	if errors.Is(more, os.ErrNotExist) {
		return bases{since: since, notes: notes}, err
	}
	var names []string
	if more == nil {
		names, more = dir.Readdirnames(-1)
		_ = dir.Close() // it was read alone
	}
	b := bases{since: since, names: make(map[string]bool, len(names)), notes: notes}
	lines := make(map[string][]byte)
	for _, name := range names {
		name = baseDir + "/" + name
		if !strings.HasPrefix(name, packs(since)) {
			b.names[name] = true
			continue
		}
		line, e := d.readPack(name)
		lines[name], more = line, errors.Join(more, e)
	}
	if len(lines) > 0 {
		b.packed = sync.OnceValue(func() map[string]packed { return unpacked(lines) })
	}
	return b, errors.Join(err, more)
}

// pack gives the base of a path that is in a pack.
func (b *bases) pack(path string) (p packed, ok bool) {
	if b.packed != nil {
		p, ok = b.packed()[path]
	}
	return p, ok
}

// file says whether there is a base of a file at a path.
func (b *bases) file(path string) bool {
	_, ok := b.pack(path)
	return ok || len(b.names) > 0 && b.names[baseName(path, b.since)]
}

// kept says whether what the session began with at a path is known: a file, or nothing.
func (b *bases) kept(path string) bool {
	return b.file(path) || b.notes[path].Is == Nothing
}

// has says whether the session is known to have begun with a file at a path.
func (b *bases) has(path string) bool {
	return b.file(path) || b.notes[path].Is == Gone || b.notes[path].Is == Some
}

// dirMode gives the permissions of a directory that the session began with.
func (b *bases) dirMode(path string) (perm uint32, known bool) {
	n := b.notes[path]
	return n.Perm, n.Is == Dir || n.Is == Mode
}

// another says whether a directory of the source may not be one that the session began with.
// All are what jobs of the session have made.
func (b *bases) another(path string, now version, since int64, all map[string]own) bool {
	o, made := all[path]
	if made && !o.Lent {
		return false
	}
	if since = max(since, o.CTime); b.has(path) || b.notes[path].Is == Nothing {
		return true
	}
	// Other permissions may be all that is new of one that is known.
	perm, known := b.notes[path].Perm, b.notes[path].Is == Dir
	return now.Placed > since && (!known || now.Perm == perm || now.Born > since)
}

// moded says whether somebody may have changed the permissions of a directory since.
func (b *bases) moded(path string, now version, since int64, all map[string]own) bool {
	o, made := all[path]
	if perm, known := b.dirMode(path); known && (!made || o.Lent) {
		return now.Perm != perm
	}
	return b.another(path, now, since, all)
}

// Inherit gives a session what is known of the beginning of another one, from which it goes
// on: their private directories. What cannot be given is not known of it.
func Inherit(ctx context.Context, to, from string) error {
	entries, err := os.ReadDir(filepath.Join(from, baseDir))
	if errors.Is(err, os.ErrNotExist) {
		entries, err = nil, nil
	}
	if len(entries) > 0 {
		err = errors.Join(err, os.MkdirAll(filepath.Join(to, baseDir), 0o700))
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), newSuffix) {
			continue
		}
		name := filepath.Join(baseDir, e.Name())
		if strings.HasPrefix(e.Name(), noteName) {
			err = errors.Join(err, copyFile(filepath.Join(to, name), filepath.Join(from, name))) // each appends to its own
		} else if e := os.Link(filepath.Join(from, name), filepath.Join(to, name)); !errors.Is(e, os.ErrExist) {
			err = errors.Join(err, e)
		}
	}
	return errors.Join(err, inheritOwn(ctx, to, from))
}

// inheritOwn has the other one's writes to the source count as those of the session.
func inheritOwn(ctx context.Context, to, from string) error {
	all, err := (&state{dir: from}).readOwn()
	if err != nil || len(all) == 0 {
		return err
	}
	d, err := openState(ctx, to)
	if err != nil {
		return err
	}
	defer d.close()
	return d.addOwn(all)
}

func copyFile(to, from string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// Given says that the session has been given what earlier jobs of a directory merged: it
// makes its next changes from that.
func Given(ctx context.Context, dir string) error {
	d, err := openState(ctx, dir)
	if err != nil {
		return err
	}
	defer d.close()
	all, err := d.readOwn()
	if err != nil {
		return err
	}
	for path, o := range all {
		o.Of = ""
		all[path] = o
	}
	return d.addOwn(all)
}

// Forget finishes what is under way in a directory, and removes it: the session is gone,
// or goes on from the source as it is.
func Forget(ctx context.Context, dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	d, err := openState(ctx, dir)
	if err != nil {
		return err
	}
	defer d.close()
	if _, err := d.recover(ctx); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
