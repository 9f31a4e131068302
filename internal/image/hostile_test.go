package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// canaries are files beside the store that hostile images aim at.
type canaries struct {
	dir   string
	paths []string
}

func newCanaries(t testing.TB) *canaries {
	c := &canaries{dir: t.TempDir()}
	for _, name := range []string{"passwd", "sub/file"} {
		p := filepath.Join(c.dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte("alive"), 0o600); err != nil {
			t.Fatal(err)
		}
		c.paths = append(c.paths, p)
	}
	return c
}

// check fails if a canary was written, linked to, or got company.
func (c *canaries) check(t testing.TB) {
	t.Helper()
	want := []string{"d .", "- passwd alive", "d sub", "- sub/file alive"}
	var got []string
	for _, line := range listing(t, c.dir) {
		f := strings.SplitN(line, " ", 4)
		got = append(got, f[0]+" "+f[3])
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the canaries are %q, want %q", got, want)
	}
	for _, p := range c.paths {
		info, err := os.Stat(p)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", p, info, err)
		}
		if st := statOf(t, p); st.Nlink != 1 {
			t.Errorf("%s has %d names", p, st.Nlink)
		}
	}
}

// TestHostileLayers: each is refused, by the name of the entry, nothing of it is
// left, and nothing outside has changed.
func TestHostileLayers(t *testing.T) {
	c := newCanaries(t)
	up := strings.Repeat("../", 20)
	out := strings.TrimPrefix(c.dir, "/")
	tests := []struct {
		name    string
		entries []tarEntry
		want    error
		says    string // the error must hold it
	}{
		{"absolute", []tarEntry{file(c.dir+"/new", "x")}, ErrRefused, c.dir + "/new"},
		{"absolute directory", []tarEntry{dir(c.dir + "/sub")}, ErrRefused, c.dir + "/sub"},
		{"the root itself", []tarEntry{dir("/")}, ErrRefused, `entry "/"`},
		{"dots", []tarEntry{file("a/"+up+out+"/passwd", "x")}, ErrRefused, `holds ".."`},
		{"dots that stay inside", []tarEntry{file("a/../b", "x")}, ErrRefused, `"a/../b"`},
		{"only dots", []tarEntry{dir("..")}, ErrRefused, `entry "..`},
		{"symlink out, then through it", []tarEntry{symlink("x", c.dir), file("x/passwd", "owned")}, ErrRefused, `"x/passwd"`},
		{"relative symlink out, then through it", []tarEntry{symlink("x", up+out), file("x/new", "owned")}, ErrRefused, `"x/new"`},
		{"symlink to a file out, then through it", []tarEntry{symlink("x", c.dir+"/passwd"), dir("d"), hardlink("y", "x/z")}, ErrRefused, "hard link"},
		{"two symlinks, then through them", []tarEntry{symlink("a", "b"), symlink("b", c.dir), file("a/new", "")}, ErrRefused, `"a/new"`},
		{"symlinks in a circle", []tarEntry{symlink("a", "b"), symlink("b", "a"), file("a/x", "")}, ErrRefused, "circle"},
		{"directory through a symlink out", []tarEntry{symlink("x", c.dir), dir("x/sub").mode(0o777)}, ErrRefused, `"x/sub`},
		{"whiteout through a symlink out", []tarEntry{symlink("x", c.dir), file("x/.wh.passwd", ""), device("stop", tar.TypeBlock, 8, 0)}, ErrRefused, "stop"},
		{"opaque through a symlink out", []tarEntry{symlink("x", c.dir), file("x/.wh..wh..opq", ""), device("stop", tar.TypeBlock, 8, 0)}, ErrRefused, "stop"},
		{"whiteout of the parent", []tarEntry{file("a/.wh...", "")}, ErrRefused, `removes ".."`},
		{"whiteout of the directory itself", []tarEntry{file("a/.wh..", "")}, ErrRefused, `removes "."`},
		{"whiteout of nothing", []tarEntry{file("a/.wh.", "")}, ErrRefused, `removes ""`},
		{"whiteout with dots before", []tarEntry{file("../.wh.passwd", "")}, ErrRefused, ".wh.passwd"},
		{"below a whiteout", []tarEntry{file(".wh.a/b", "")}, ErrRefused, ".wh.a/b"},
		{"hard link to an absolute path", []tarEntry{hardlink("a", c.dir+"/passwd")}, ErrRefused, c.dir + "/passwd"},
		{"hard link with dots", []tarEntry{hardlink("a", up+out+"/passwd")}, ErrRefused, "hard link"},
		{"hard link through a symlink out", []tarEntry{symlink("x", c.dir), hardlink("a", "x/passwd")}, ErrRefused, "hard link"},
		{"hard link to a symlink out", []tarEntry{symlink("x", c.dir+"/passwd"), hardlink("a", "x")}, ErrRefused, "not a regular file"},
		{"hard link to a directory", []tarEntry{dir("d"), hardlink("a", "d")}, ErrRefused, "not a regular file"},
		{"hard link to the root", []tarEntry{hardlink("a", "./")}, ErrRefused, "hard link"},
		{"hard link to nothing", []tarEntry{hardlink("a", "b")}, ErrRefused, "there is none"},
		{"block device", []tarEntry{device("dev/sda", tar.TypeBlock, 8, 0)}, ErrRefused, `"dev/sda"`},
		{"memory", []tarEntry{device("dev/mem", tar.TypeChar, 1, 1)}, ErrRefused, `"dev/mem"`},
		{"harmless device in another place", []tarEntry{device("bin/null", tar.TypeChar, 1, 3)}, ErrRefused, `"bin/null"`},
		{"an overlay's whiteout", []tarEntry{device("dev/x", tar.TypeChar, 0, 0)}, ErrRefused, `"dev/x"`},
		{"harmless device, through a link", []tarEntry{dir("a"), symlink("dev", "a"), device("dev/null", tar.TypeChar, 1, 3)}, ErrRefused, `"dev/null"`},
		{"owner above the range", []tarEntry{file("a", "").owned(65536, 0)}, ErrRefused, "65536:0"},
		{"group above the range", []tarEntry{file("a", "").owned(0, 1_000_000)}, ErrRefused, "0:1000000"},
		{"owner below zero", []tarEntry{file("a", "").owned(-1, 0)}, ErrRefused, "-1:0"},
		{"long name", []tarEntry{file(strings.Repeat("n", 256), "")}, ErrRefused, "longer than 255"},
		{"long path", []tarEntry{file(strings.Repeat(strings.Repeat("n", 200)+"/", 21), "")}, ErrRefused, "longer than 4096"},
		{"deep path", []tarEntry{dir(strings.Repeat("d/", 300))}, ErrRefused, "deeper than"},
		{"deep by links", deepByLinks(), ErrRefused, "deeper than"},
		{"path over a file", []tarEntry{file("a", ""), file("a/b", "")}, ErrRefused, "not a directory"},
		{"long link", []tarEntry{symlink("a", strings.Repeat("n", 5000))}, ErrRefused, "link to a name"},
		{"link to nothing", []tarEntry{symlink("a", "")}, ErrRefused, "link to nothing"},
		{"root as a link", []tarEntry{symlink("./", c.dir)}, ErrRefused, "root must be a directory"},
		{"unknown kind", []tarEntry{{tar.Header{Typeflag: 'Z', Name: "odd"}, ""}}, ErrRefused, `"odd"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStore(t)
			_, err := s.Import(t.Context(), "hostile", bytes.NewReader(looseTar(t, tt.entries...)))
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v\nwant %v that says %q", err, tt.want, tt.says)
			}
			checkNothingLeft(t, s, 0)
			c.check(t)
		})
	}
}

// deepByLinks nests directories beyond what a name can say.
func deepByLinks() []tarEntry {
	half := strings.Repeat("d/", 200)
	return []tarEntry{dir(half), symlink("l", half), dir("l/" + half)}
}

// TestHarmlessOddities: what looks hostile and is not is unpacked, inside.
func TestHarmlessOddities(t *testing.T) {
	c := newCanaries(t)
	out := strings.TrimPrefix(c.dir, "/")
	for name, entries := range map[string][]tarEntry{
		"symlinks out that nobody follows":      {symlink("a", c.dir), symlink("b", strings.Repeat("../", 30)+out)},
		"a file over a symlink out":             {symlink("a", c.dir+"/passwd"), file("a", "mine")},
		"a directory over a symlink out":        {symlink("a", c.dir), dir("a").mode(0o777), file("a/passwd", "mine")},
		"whiteout of a symlink out":             {symlink("a", c.dir), file(".wh.a", "")},
		"a symlink to a place of the same name": {dir(out), symlink("x", c.dir), file("x/passwd", "mine")},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			if _, err := s.Import(t.Context(), "odd", bytes.NewReader(tarOf(t, entries...))); err != nil {
				t.Error(err)
			}
			checkNothingLeft(t, s, 1)
			c.check(t)
		})
	}
}

// looseTar packs also what the standard library's writer refuses.
func looseTar(t testing.TB, entries ...tarEntry) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, e := range entries {
		b.Write(looseEntry(e))
	}
	b.Write(make([]byte, 1024))
	return b.Bytes()
}

func looseEntry(e tarEntry) []byte {
	var pax strings.Builder
	short := func(key, value string, most int) string {
		if len(value) <= most {
			return value
		}
		pax.WriteString(paxRecord(key, value))
		return value[:most]
	}
	h := make([]byte, 512)
	copy(h, short("path", e.Name, 100))
	octal(h[100:108], e.Mode)
	octal(h[108:116], int64(e.Uid))
	octal(h[116:124], int64(e.Gid))
	octal(h[124:136], e.Size)
	octal(h[136:148], testEpoch.Unix())
	h[156] = e.Typeflag
	copy(h[157:], short("linkpath", e.Linkname, 100))
	copy(h[257:], "ustar\x0000")
	octal(h[329:337], e.Devmajor)
	octal(h[337:345], e.Devminor)
	for key, value := range e.PAXRecords {
		pax.WriteString(paxRecord(key, value))
	}
	var out []byte
	if pax.Len() > 0 {
		out = looseEntry(tarEntry{tar.Header{Typeflag: tar.TypeXHeader, Name: "pax", Size: int64(pax.Len())}, pax.String()})
	}
	sum := int64(8 * ' ')
	for i, c := range h {
		if i < 148 || i >= 156 {
			sum += int64(c)
		}
	}
	copy(h[148:156], fmt.Sprintf("%06o\x00 ", sum))
	out = append(out, h...)
	out = append(out, e.content...)
	return append(out, make([]byte, -len(e.content)&511)...)
}

// paxRecord counts its own length in.
func paxRecord(key, value string) string {
	rest := len(key) + len(value) + 3
	n := rest + len(strconv.Itoa(rest))
	n = rest + len(strconv.Itoa(n))
	return fmt.Sprintf("%d %s=%s\n", n, key, value)
}

// octal writes a number field; what does not fit, or is negative, is binary.
func octal(field []byte, v int64) {
	digits := len(field) - 1
	if v >= 0 && v < 1<<(3*digits) {
		copy(field, fmt.Sprintf("%0*o", digits, v))
		return
	}
	for i := len(field) - 1; i >= 0; i-- {
		field[i] = byte(v)
		v >>= 8
	}
	field[0] |= 0x80
}

// TestHostileArchives: damaged or bloated archives.
func TestHostileArchives(t *testing.T) {
	good := tarOf(t, file("a", strings.Repeat("x", 2000)), file("b", "y"))
	small := Limits{Bytes: 1 << 20, FileBytes: 1 << 19, Entries: 100}
	tests := []struct {
		name   string
		raw    []byte
		limits Limits
		want   error
		says   string
	}{
		{"empty", nil, Limits{}, ErrInvalid, "empty"},
		{"no tar", []byte(strings.Repeat("hello", 500)), Limits{}, ErrInvalid, "not a tar archive"},
		{"only zeros", make([]byte, 10240), Limits{}, ErrInvalid, "empty"},
		{"truncated in a file", good[:1500], Limits{}, ErrInvalid, ""},
		{"truncated in a header", good[:512+2048+100], Limits{}, ErrInvalid, ""},
		{"truncated gzip", gzipped(good)[:40], Limits{}, ErrInvalid, "compression"},
		{"truncated zstd", zstded(t, good)[:30], Limits{}, ErrInvalid, "compression"},
		{"gzip of garbage", append(gzipped(good)[:20], "garbage"...), Limits{}, ErrInvalid, "compression"},
		{"checksum", flip(good, 150), Limits{}, ErrInvalid, "damaged"},
		{"negative size", looseTar(t, tarEntry{tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: -5}, ""}), Limits{}, ErrInvalid, "damaged"},
		{"size in the header of a link", looseTar(t, tarEntry{tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "b", Size: 1 << 40}, ""}), Limits{}, nil, ""},
		{"large file", looseTar(t, tarEntry{tar.Header{Typeflag: tar.TypeReg, Name: "big", Size: 1 << 40}, "x"}), Limits{}, ErrInvalid, ""},
		{"file above the limit", tarOf(t, file("big", strings.Repeat("x", 1<<19+1))), small, ErrTooLarge, `"big"`},
		{"sum above the limit", tarOf(t, file("a", strings.Repeat("x", 1<<19)), file("b", strings.Repeat("x", 1<<19)), file("c", "x")), small, ErrTooLarge, "more than 1048576 bytes"},
		{"archive above the limit", tarOf(t, file("big", strings.Repeat("x", 3<<20))), small, ErrTooLarge, "the archive has more"},
		{"too many entries", manyEntries(t, 101), small, ErrTooLarge, "more than 100 entries"},
		{"directories that no entry names", tarOf(t, file(strings.Repeat("a/", 101)+"f", "")), small, ErrTooLarge, "more than 100 entries"},
		{"gzip bomb", bomb(t, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }), Limits{}, ErrTooLarge, "bombs"},
		{"zstd bomb", bomb(t, zstdWriter), Limits{}, ErrTooLarge, "bombs"},
		{"sparse file, old form", sparseTar(1 << 33), Limits{}, ErrTooLarge, `"hole"`},
		{"sparse file, larger than a file may be", sparseTar(1 << 50), Limits{}, ErrTooLarge, `"hole"`},
		{"large extended header", looseTar(t, tarEntry{tar.Header{Typeflag: tar.TypeXHeader, Name: "pax", Size: 4 << 20}, strings.Repeat("x", 4<<20)}), Limits{}, ErrInvalid, "damaged"},
		{"large long name", looseTar(t, tarEntry{tar.Header{Typeflag: tar.TypeGNULongName, Name: "x", Size: 4 << 20}, strings.Repeat("x", 4<<20)}), Limits{}, ErrInvalid, "damaged"},
		{"name with NUL", looseTar(t, tarEntry{tar.Header{Typeflag: tar.TypeReg, Name: "x", PAXRecords: map[string]string{"path": "a\x00b"}}, ""}), Limits{}, ErrInvalid, "damaged"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStoreLimited(t, tt.limits)
			_, err := s.Import(t.Context(), "hostile", bytes.NewReader(tt.raw))
			if tt.want == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v\nwant %v that says %q", err, tt.want, tt.says)
			}
			checkNothingLeft(t, s, 0)
		})
	}
}

func gzipped(raw []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(raw)
	w.Close()
	return b.Bytes()
}

func zstdWriter(w io.Writer) io.WriteCloser {
	z, err := zstd.NewWriter(w)
	if err != nil {
		panic(err)
	}
	return z
}

func zstded(t testing.TB, raw []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zstdWriter(&b)
	if _, err := w.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func flip(raw []byte, at int) []byte {
	c := bytes.Clone(raw)
	c[at] ^= 1
	return c
}

func manyEntries(t testing.TB, n int) []byte {
	var entries []tarEntry
	for i := range n {
		entries = append(entries, file(fmt.Sprint(i), ""))
	}
	return tarOf(t, entries...)
}

// bomb is an archive of one file of zeros, more than any archive may be.
func bomb(t testing.TB, compress func(io.Writer) io.WriteCloser) []byte {
	t.Helper()
	var b bytes.Buffer
	w := compress(&b)
	const size = ratioGrace + 64<<20
	if _, err := w.Write(looseEntry(tarEntry{tar.Header{Typeflag: tar.TypeReg, Name: "zeros", Size: size}, ""})); err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 1<<20)
	for range size / len(zeros) {
		if _, err := w.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// sparseTar is an archive of one file that is all hole, in the form of GNU tar.
func sparseTar(size int64) []byte {
	e := looseEntry(tarEntry{tar.Header{Typeflag: tar.TypeGNUSparse, Name: "hole"}, ""})
	h := e[:512]
	copy(h[257:], "ustar  \x00")
	for i := 345; i < 512; i++ {
		h[i] = 0
	}
	octal(h[386:398], size)
	octal(h[398:410], 0)
	octal(h[483:495], size)
	sum := int64(8 * ' ')
	for i, c := range h {
		if i < 148 || i >= 156 {
			sum += int64(c)
		}
	}
	copy(h[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return append(e, make([]byte, 1024)...)
}
