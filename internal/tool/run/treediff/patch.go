package treediff

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"crypto/sha1" //nolint:gosec // the names that git gives contents; nothing is trusted for them
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"

	"github.com/toold/toold/internal/tool/run/root"
	"github.com/toold/toold/internal/tool/run/textdiff"
)

// maxPatched bounds a file of a patch, in bytes, holes among them: git apply keeps all of it in memory, and
// takes no patch of more than 1023 MiB.
const maxPatched = 512 << 20

// maxReverse bounds a binary file's old content in a patch, in bytes.
const maxReverse = 16 << 20

// noObject is what git calls the content of what is not there.
var noObject = strings.Repeat("0", 2*sha1.Size)

// patch writes what git apply takes.
type patch struct {
	forward
	w       *walk
	stored  convertedFiles
	out     *bufio.Writer
	hunks   bytes.Buffer
	deflate *zlib.Writer
}

func newPatch(w *walk, out io.Writer) *patch {
	p := &patch{w: w, stored: convertedFiles{w: w}, out: bufio.NewWriterSize(out, chunk)}
	p.deflate, _ = zlib.NewWriterLevel(nil, zlib.BestSpeed) // there is that level
	return p
}

func (p *patch) ordered() bool { return true }

func (p *patch) end() error { return p.out.Flush() }

// beyond reports whether a side of a change is too large for a patch.
func beyond(c *change) bool { return max(c.old.size(), c.new.size()) > maxPatched }

// reads leaves alone what is not in the patch, be it a change or not.
func (p *patch) reads(c *change) bool { return p.forward.reads(c) && !beyond(c) }

func (p *patch) visit(c *change) error {
	if beyond(c) {
		p.w.totals.LeftOut++
		return nil
	}
	old, new := gitMode(&c.old), gitMode(&c.new)
	if c.unreadable != "" {
		return nil
	}
	if c.old.kind() == Other || c.new.kind() == Other || old == "" && new == "" && c.status == Modified {
		p.w.totals.LeftOut++
	}
	switch {
	case old == "" && new == "":
		return nil
	case refused(c.path, c.old.kind() == Link || c.new.kind() == Link) && !p.w.o.named(c.path):
		p.w.totals.LeftOut++
		return nil
	case c.status == Type && old != "" && new != "": // git knows no way from a file to a link
		gone, come := *c, *c
		gone.new, come.old = half{}, half{}
		if err := p.file(&gone, old, ""); err != nil {
			return err
		}
		return p.file(&come, "", new)
	}
	return p.file(c, old, new)
}

// gitMode is what git knows of the mode of a file or link; "" is of all else.
func gitMode(h *half) string {
	switch k := h.kind(); {
	case k == Link:
		return "120000"
	case k == File && h.node.Mode&0o100 != 0:
		return "100755"
	case k == File:
		return "100644"
	}
	return ""
}

// refused reports whether git apply does not take a path: one that leads into a
// repository's own directory on some file system, or makes a link of .gitmodules. It errs
// on the side of leaving out, as one such path has git refuse the whole patch.
func refused(path string, link bool) bool {
	for name := range strings.FieldsFuncSeq(strings.ToLower(path), func(r rune) bool { return r == '/' || r == '\\' }) {
		name, _, _ = strings.Cut(name, ":")
		switch strings.TrimRight(name, ". ") {
		case ".git", "git~1":
			return true
		}
		if link && (strings.HasPrefix(name, ".gitmodules") || strings.HasPrefix(name, "gitmod~") || strings.HasPrefix(name, "gi7eba~")) {
			return true
		}
	}
	return false
}

// named reports whether a path that git refuses was asked for: then somebody wants to look
// at it.
func (o *Options) named(path string) bool {
	return slices.ContainsFunc(o.Paths, func(p string) bool {
		return p == path || strings.HasPrefix(path, p+"/") && refused(p, false)
	})
}

// InPatch reports whether a patch of what differs at paths, all without any, has a file of
// that path: git refuses some.
func InPatch(path string, paths []string) bool {
	return !refused(path, false) || (&Options{Paths: paths}).named(path)
}

// file writes one file's part. A mode is "" where there is none.
func (p *patch) file(c *change, oldMode, newMode string) error {
	oldHash, newHash, err := c.gitHashes()
	if err != nil {
		if err = c.spoiled(err); err == nil {
			p.w.totals.Unreadable++
		}
		return err
	}
	if oldHash == newHash && oldMode == newMode {
		p.w.totals.LeftOut++ // other permissions
		return nil
	}
	if c.old.kind() == File && oldHash != newHash && p.stored.has(c.path, c.old.large() || bytes.Contains(c.old.data, []byte("$Id:"))) {
		p.w.totals.Converted++
	}
	fmt.Fprintf(p.out, "diff --git %s %s\n", quoted("a/"+c.path), quoted("b/"+c.path))
	index := fmt.Sprintf("index %s..%s", oldHash, newHash)
	switch {
	case oldMode == "":
		fmt.Fprintf(p.out, "new file mode %s\n%s\n", newMode, index)
	case newMode == "":
		fmt.Fprintf(p.out, "deleted file mode %s\n%s\n", oldMode, index)
	case oldMode != newMode:
		fmt.Fprintf(p.out, "old mode %s\nnew mode %s\n", oldMode, newMode)
		if oldHash == newHash {
			return nil
		}
		fmt.Fprintln(p.out, index)
	default:
		fmt.Fprintf(p.out, "%s %s\n", index, oldMode)
	}
	if c.isText() {
		p.text(c, oldMode, newMode)
		return nil
	}
	return p.binary(c, oldHash, newHash)
}

// text writes the hunks; there are none between an empty file and none.
func (p *patch) text(c *change, oldMode, newMode string) {
	p.hunks.Reset()
	stat := textdiff.Hunks(&p.hunks, c.old.data, c.new.data)
	p.w.totals.Added += stat.Added
	p.w.totals.Removed += stat.Removed
	if p.hunks.Len() > 0 {
		fmt.Fprintf(p.out, "--- %s\n+++ %s\n", headName("a/"+c.path, oldMode), headName("b/"+c.path, newMode))
		_, _ = p.hunks.WriteTo(p.out) // the error stays until Flush
	}
	if p.hunks.Cap() > maxText {
		p.hunks = bytes.Buffer{}
	}
}

// headName is a name in the head of hunks. git ends one with spaces by a tab.
func headName(name, mode string) string {
	if mode == "" {
		return "/dev/null"
	}
	if q := quoted(name); q != name || !strings.Contains(name, " ") {
		return q
	}
	return name + "\t"
}

// quoted is a name as git writes it: as in C, if it has odd bytes. git itself cannot read
// one with a space before a slash that is not quoted.
func quoted(name string) string {
	if !strings.Contains(name, " /") && !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r >= 0x7f || r == '"' || r == '\\' }) {
		return name
	}
	b := []byte{'"'}
	for i := range len(name) {
		switch c := name[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\t':
			b = append(b, '\\', 't')
		case c < ' ' || c >= 0x7f:
			b = fmt.Appendf(b, "\\%03o", c)
		default:
			b = append(b, c)
		}
	}
	return string(append(b, '"'))
}

// gitHashes are the names of both contents.
func (c *change) gitHashes() (old, new string, err error) {
	if old, err = c.gitHash(&c.old); err == nil {
		new, err = c.gitHash(&c.new)
	}
	return old, new, err
}

func (c *change) gitHash(h *half) (string, error) {
	if h.kind() != File && h.kind() != Link {
		return noObject, nil
	}
	sum := gitSum(c.gitSize(h))
	err := c.stream(h, sum)
	return hex.EncodeToString(sum.Sum(nil)), err
}

func gitSum(size int64) hash.Hash {
	sum := sha1.New()
	fmt.Fprintf(sum, "blob %d\x00", size)
	return sum
}

func (c *change) gitSize(h *half) int64 {
	switch h.kind() {
	case File:
		return h.node.Size
	case Link:
		return int64(len(h.data))
	}
	return 0
}

// binary writes both contents.
func (p *patch) binary(c *change, oldHash, newHash string) error {
	fmt.Fprintln(p.out, "GIT binary patch")
	if err := p.literal(c, &c.new, newHash); err != nil || c.gitSize(&c.old) > maxReverse {
		return err
	}
	return p.literal(c, &c.old, oldHash)
}

// literal writes one content, which must be the one that was hashed.
func (p *patch) literal(c *change, h *half, hash string) error {
	size := c.gitSize(h)
	fmt.Fprintf(p.out, "literal %d\n", size)
	sum, lines := gitSum(size), &base85{out: p.out}
	p.deflate.Reset(lines)
	if gitMode(h) != "" {
		if err := c.stream(h, io.MultiWriter(sum, p.deflate)); err != nil {
			return err
		}
		if hex.EncodeToString(sum.Sum(nil)) != hash {
			return &root.Error{Code: root.Stale, Msg: fmt.Sprintf("%q changed while it was read", c.path)}
		}
	}
	if err := p.deflate.Close(); err != nil {
		return err
	}
	return lines.end()
}

// base85 writes bytes in git's lines of up to 52.
type base85 struct {
	out  *bufio.Writer
	line []byte
}

const (
	base85Line   = 52
	base85Digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
)

// Write implements io.Writer.
func (b *base85) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), base85Line-len(b.line))
		b.line, rest = append(b.line, rest[:n]...), rest[n:]
		if len(b.line) == base85Line {
			b.flush()
		}
	}
	return len(p), nil
}

// flush writes a line: a letter for how many bytes it has, and five digits for each four.
func (b *base85) flush() {
	n := len(b.line)
	if n == 0 {
		return
	}
	count := byte('A' + n - 1)
	if n > 26 {
		count = byte('a' + n - 27)
	}
	_ = b.out.WriteByte(count) // errors stay until Flush
	b.line = append(b.line, 0, 0, 0)
	for i := 0; i < n; i += 4 {
		v := uint32(b.line[i])<<24 | uint32(b.line[i+1])<<16 | uint32(b.line[i+2])<<8 | uint32(b.line[i+3])
		var digits [5]byte
		for d := 4; d >= 0; d-- {
			digits[d] = base85Digits[v%85]
			v /= 85
		}
		_, _ = b.out.Write(digits[:])
	}
	_ = b.out.WriteByte('\n')
	b.line = b.line[:0]
}

// end writes what is left, and the empty line that ends a content.
func (b *base85) end() error {
	b.flush()
	return b.out.WriteByte('\n')
}
