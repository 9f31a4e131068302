package treetar

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/tool/run/root"
)

// archive makes a tar of headers; content is that of files.
func archive(t testing.TB, content string, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range headers {
		h := &headers[i]
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(content))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(w, content); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func file(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name} }
func dir(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}
}

func link(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
}

func hard(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to}
}

// into unpacks into top/in; top/out is what no archive may touch, with a file "secret".
func into(t testing.TB, most int64, b []byte) (u *Unpacker, top string, err error) {
	t.Helper()
	top = t.TempDir()
	for _, d := range []string{"in", "out"} {
		if err := os.Mkdir(filepath.Join(top, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(top, "out/secret"), []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	u = &Unpacker{Root: newRoot(t, filepath.Join(top, "in")), Top: "/", In: bytes.NewReader(b), Most: most}
	err = u.Unpack(t.Context())
	if got := picture(t, filepath.Join(top, "out")); len(got) != 2 || !strings.HasSuffix(got["secret"], "secret") {
		t.Errorf("outside of the directory there is now %q", got)
	}
	return u, top, err
}

// An archive that means harm is refused, or does none.
func TestHostile(t *testing.T) {
	needs.OpenAt2(t)
	whole := archive(t, "x", dir("d"), file("d/f"))
	for name, tc := range map[string]struct {
		in   []byte
		most int64
		err  string // "" = all of it is read
		bad  int    // entries that could not be written
		want string // what there is then, besides "."
	}{
		"whole":                {whole, testMost, "", 0, "d d/f"},
		"dots":                 {archive(t, "x", dir("./"), dir("./d/"), file("./d//f"), file("d/./g")), testMost, "", 0, "d d/f d/g"},
		"absolute":             {archive(t, "x", file("a"), file("/etc/x")), testMost, "absolute name /etc/x", 0, "a"},
		"leads out":            {archive(t, "x", file("a"), file("b/../../out/secret")), testMost, "leads out", 0, "a"},
		"only dots":            {archive(t, "x", file("..")), testMost, "leads out", 0, ""},
		"the directory a file": {archive(t, "x", file(".")), testMost, "something else than a directory", 0, ""},
		"the directory a link": {archive(t, "x", link("./", "../out")), testMost, "something else than a directory", 0, ""},
		"long name":            {archive(t, "x", file(strings.Repeat("a/", 2000)+strings.Repeat("b", 200))), testMost, "name of 4200 bytes", 0, ""},
		"long part":            {archive(t, "x", file(strings.Repeat("a", 256))), testMost, "256 bytes between slashes", 0, ""},
		"deep":                 {archive(t, "x", file(strings.Repeat("a/", 1001)+"b")), testMost, "1002 directories", 0, ""},
		"link without target":  {archive(t, "x", link("l", "")), testMost, "leads to a path of 0 bytes", 0, ""},
		"hard link out":        {archive(t, "x", hard("h", "../out/secret")), testMost, "leads out", 0, ""},
		"hard link absolute":   {archive(t, "x", hard("h", "/etc/passwd")), testMost, "absolute", 0, ""},

		"through a link":          {archive(t, "x", link("l", "../out"), file("l/secret"), file("l/new"), file("z")), testMost, "", 2, "l z"},
		"through a link inside":   {archive(t, "x", dir("d"), link("l", "d"), file("l/f"), dir("l/e"), link("l/k", "z")), testMost, "", 3, "d l"},
		"over an inner link":      {archive(t, "x", dir("d"), link("l", "d"), tar.Header{Typeflag: tar.TypeDir, Name: "l", Mode: 0o500}, file("d/f")), testMost, "", 1, "d d/f l"},
		"a directory over a link": {archive(t, "x", link("l", "../out"), dir("l"), file("l/new")), testMost, "", 2, "l"},
		"a file over a link":      {archive(t, "x", link("l", "../out/secret"), file("l")), testMost, "", 0, "l"},
		"a link over a file":      {archive(t, "x", file("l"), link("l", "../out/secret")), testMost, "", 0, "l"},
		"a link over a directory": {archive(t, "x", dir("d"), link("d", "../out")), testMost, "", 1, "d"},
		"a file over a directory": {archive(t, "x", dir("d"), file("d")), testMost, "", 1, "d"},
		"twice":                   {archive(t, "x", file("f"), dir("d"), dir("d"), file("f")), testMost, "", 0, "d f"},
		"hard link by a link":     {archive(t, "x", link("l", "../out/secret"), hard("h", "l"), link("m", "../out"), hard("i", "m/secret")), testMost, "", 2, "l m"},
		"hard link to nothing":    {archive(t, "x", hard("h", "none"), file("f"), hard("g", "f")), testMost, "", 1, "f g"},
		"hard link to itself":     {archive(t, "x", file("f"), hard("f", "f")), testMost, "", 0, "f"},
		"devices": {archive(t, "x", tar.Header{Typeflag: tar.TypeChar, Name: "c"}, tar.Header{Typeflag: tar.TypeBlock, Name: "b"},
			tar.Header{Typeflag: tar.TypeFifo, Name: "p"}, file("f")), testMost, "", 0, "f"},

		"empty":               {nil, testMost, "cut", 0, ""},
		"not a tar":           {bytes.Repeat([]byte("hello "), 1000), testMost, "not a tar", 0, ""},
		"gzip":                {append([]byte{0x1f, 0x8b, 8, 0}, make([]byte, 1020)...), testMost, "not a tar", 0, ""},
		"cut in a file":       {archive(t, strings.Repeat("x", 600<<10), dir("d"), file("d/f"))[:512<<10], testMost, "cut", 0, "d"},
		"cut behind a file":   {whole[:1025], testMost, "cut", 0, "d d/f"},
		"cut in a header":     {whole[:700], testMost, "cut", 0, "d"},
		"cut between entries": {whole[:512], testMost, "cut", 0, "d"},
		"cut before the end":  {whole[:1536], testMost, "cut", 0, "d d/f"},
		"half an end":         {whole[:2048], testMost, "cut", 0, "d d/f"},
		"more behind the end": {append(bytes.Clone(whole), bytes.Repeat([]byte("x"), 10_000)...), testMost, "", 0, "d d/f"},

		"too long":             {whole, 1500, "more than 1500 bytes", 0, "d d/f"},
		"long file":            {archive(t, strings.Repeat("x", 5000), file("f")), 4000, "more than 4000 bytes", 0, ""},
		"hard links copied":    {archive(t, strings.Repeat("x", 5000), file("f"), hard("g", "f"), hard("h", "f")), 11_000, "more than 11000 bytes", 0, "f g"},
		"a sparse file of 8 E": {sparse(1<<62, 0), testMost, "more than 1073741824 bytes", 0, ""},
		"a size below zero":    {handmade([][2]string{{"size", "-5"}}, nil), testMost, "not a tar", 0, ""},
		"a size of its own":    {handmade([][2]string{{"size", "4611686018427387904"}}, nil), testMost, "more than 1073741824 bytes", 0, ""},
		"a huge record":        {handmade([][2]string{{"SCHILY.xattr.user.x", strings.Repeat("x", 2<<20)}}, nil), testMost, "not a tar", 0, ""},
		"a huge path":          {handmade([][2]string{{"path", strings.Repeat("n", 900<<10)}}, nil), testMost, "name of 921600 bytes", 0, ""},
		"a name by a record":   {handmade([][2]string{{"path", "../out/new"}}, nil), testMost, "leads out", 0, ""},
	} {
		u, top, err := into(t, tc.most, tc.in)
		if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("%s: %v, want %q", name, err, tc.err)
		}
		if u.Failed.N != tc.bad {
			t.Errorf("%s: %d entries failed, want %d: %v", name, u.Failed.N, tc.bad, u.Notes("be written"))
		}
		var got []string
		for _, n := range sorted(picture(t, filepath.Join(top, "in"))) {
			if n != "." {
				got = append(got, n)
			}
		}
		if s := strings.Join(got, " "); s != tc.want {
			t.Errorf("%s: there is %q, want %q", name, s, tc.want)
		}
	}
}

func sorted(m map[string]string) []string {
	var names []string
	for n := range m {
		names = append(names, n)
	}
	for i := range names {
		for k := i; k > 0 && names[k] < names[k-1]; k-- {
			names[k], names[k-1] = names[k-1], names[k]
		}
	}
	return names
}

// sparse is an archive of one GNU sparse file of this size, all of it a hole but n bytes.
func sparse(size int64, n int) []byte {
	m := []byte("1\n0\n" + itoa(int64(n)) + "\n")
	m = append(m, make([]byte, 512-len(m))...)
	m = append(m, make([]byte, n)...)
	return handmade([][2]string{{"GNU.sparse.major", "1"}, {"GNU.sparse.minor", "0"}, {"GNU.sparse.name", "f"}, {"GNU.sparse.realsize", itoa(size)}}, m)
}

// handmade is an archive of one file with these records, which archive/tar would not write.
func handmade(all [][2]string, body []byte) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	records := ""
	for _, kv := range all {
		line := " " + kv[0] + "=" + kv[1] + "\n"
		n := len(line) + 1
		for n != len(line)+len(itoa(int64(n))) {
			n++
		}
		records += itoa(int64(n)) + line
	}
	raw := func(flag byte, name string, body []byte) {
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(body)), Mode: 0o644, Format: tar.FormatUSTAR})
		_, _ = w.Write(body)
		_ = w.Flush()
		at := bytes.LastIndex(b.Bytes(), []byte(name+"\x00"))
		h := b.Bytes()[at : at+512]
		h[156] = flag
		copy(h[148:156], "        ")
		sum := int64(0)
		for _, c := range h {
			sum += int64(c)
		}
		oct := []byte("000000\x00 ")
		for i := 5; i >= 0; i-- {
			oct[i] = '0' + byte(sum&7)
			sum >>= 3
		}
		copy(h[148:156], oct)
	}
	raw('x', "PaxHeader", []byte(records))
	raw('0', "f", body)
	_ = w.Close()
	return b.Bytes()
}

func itoa(n int64) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}

// What is there is replaced as a single file is: keeping its bits, and never through it.
func TestOverThere(t *testing.T) {
	needs.OpenAt2(t)
	top := t.TempDir()
	in := func(name string) string { return filepath.Join(top, name) }
	for _, err := range []error{
		os.WriteFile(in("f"), []byte("old"), 0o600), os.Mkdir(in("d"), 0o700), os.WriteFile(in("d/keep"), []byte("k"), 0o644),
		os.Symlink("f", in("l")), os.Link(in("f"), in("other")), unix.Mkfifo(in("p"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	u := &Unpacker{Root: newRoot(t, top), Top: "/", Most: testMost}
	u.In = bytes.NewReader(archive(t, "new", tar.Header{Typeflag: tar.TypeReg, Name: "f", Mode: 0o755}, dir("d"), file("l"), file("p"),
		tar.Header{Typeflag: tar.TypeReg, Name: "suid", Mode: 0o6755}, tar.Header{Typeflag: tar.TypeDir, Name: "sticky", Mode: 0o3777}))
	if err := u.Unpack(t.Context()); err != nil || u.Failed.N != 1 {
		t.Fatalf("%v, %v", err, u.Notes("be written"))
	}
	fifo, err := os.Lstat(in("p"))
	if err != nil || fifo.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("the FIFO is %v, %v", fifo, err)
	}
	if err := os.Remove(in("p")); err != nil {
		t.Fatal(err)
	}
	got := picture(t, top)
	for name, want := range map[string]string{
		"f": "-rw-------new", "d": "drwx------", "d/keep": "-rw-r--r--k", "l": "-rw-r--r--new", "other": "-rw-------old",
		"suid": "-rwxr-xr-xnew", "sticky": "drwxrwxrwx",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
}

// A tree that changes while it is packed gives an archive that is whole.
func TestChangesMeanwhile(t *testing.T) {
	needs.OpenAt2(t)
	top := t.TempDir()
	for _, n := range []string{"a", "b", "c"} {
		if err := os.WriteFile(filepath.Join(top, n), bytes.Repeat([]byte(n), 300<<10), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	cut := false
	p := &Packer{Root: newRoot(t, top), Top: "/", Most: testMost, Out: writerFunc(func(b []byte) (int, error) {
		if !cut {
			cut = true
			for _, n := range []string{"a", "b", "c"} {
				_ = os.Truncate(filepath.Join(top, n), 100<<10)
			}
		}
		return out.Write(b)
	})}
	if err := p.Pack(t.Context()); err != nil || p.Failed.N != 1 {
		t.Fatalf("%v, %v", err, p.Notes("be read"))
	}
	into := t.TempDir()
	u := unpack(t, bytes.NewReader(out.Bytes()), filepath.Join(into, "x"))
	if u.Files != 3 || u.Bytes != 500<<10 {
		t.Errorf("%d files, %d bytes", u.Files, u.Bytes)
	}
	got := picture(t, filepath.Join(into, "x"))
	filled := 0
	for name, is := range got {
		rest := strings.TrimLeft(strings.TrimLeft(is, "drwx-"), name)
		filled += len(rest)
		if strings.Trim(rest, "\x00") != "" {
			t.Errorf("%s is filled up with %.20q", name, strings.TrimLeft(rest, "\x00"))
		}
	}
	if filled == 0 {
		t.Error("nothing was filled up")
	}
}

// What cannot be packed is skipped or counted, and the bound holds.
func TestPackBounds(t *testing.T) {
	needs.OpenAt2(t)
	top := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(top, "p"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(top, "f"), make([]byte, 10_000), 0o644); err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int64]error{100: ErrTooLarge, 11_000: ErrTooLarge, 12_000: ErrTooLarge, 12_800: nil} {
		var out bytes.Buffer
		p := &Packer{Root: newRoot(t, top), Top: "/", Most: most, Out: &out}
		if err := p.Pack(t.Context()); !errors.Is(err, want) || int64(out.Len()) > most {
			t.Errorf("%d bytes: %v, %d bytes came", most, err, out.Len())
		}
		if p.Skipped.N != 1 && want == nil {
			t.Errorf("%d skipped", p.Skipped.N)
		}
	}
}

// Any bytes: nothing outside changes, nothing panics, and what is read is bounded.
func FuzzUnpack(f *testing.F) {
	f.Add(archive(f, "x", dir("d"), file("d/f"), link("l", "../out"), hard("h", "d/f")))
	f.Add(archive(f, "x", link("l", "../out"), file("l/secret"), file("../x"), file("/y")))
	f.Add(sparse(100, 10))
	f.Add(sparse(1<<40, 0))
	f.Add(archive(f, "", tar.Header{Typeflag: tar.TypeReg, Name: strings.Repeat("a/", 100) + "\xff", Format: tar.FormatPAX}))
	f.Fuzz(func(t *testing.T, b []byte) {
		u, top, err := into(t, 1<<20, b)
		if u.Bytes > 1<<20 {
			t.Errorf("%d bytes were written", u.Bytes)
		}
		if err != nil && root.CodeOf(err) == "" && !errors.Is(err, ErrTooLarge) {
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Errorf("%v", err)
			}
		}
		for name, is := range picture(t, filepath.Join(top, "in")) {
			if strings.ContainsAny(is[:10], "stST") || strings.HasPrefix(is, "u") || strings.HasPrefix(is, "g") {
				t.Errorf("%q is %.20q", name, is)
			}
		}
	})
}

// On the host no more is written than comes, and nothing that the umask does not let.
func TestPlain(t *testing.T) {
	needs.OpenAt2(t)
	for name, in := range map[string][]byte{
		"holes":       sparse(100_000, 10),
		"a hard link": archive(t, "x", file("f"), hard("g", "f")),
	} {
		u := &Unpacker{Root: newRoot(t, t.TempDir()), Top: "/", In: bytes.NewReader(in), Most: testMost, Plain: true}
		if err := u.Unpack(t.Context()); err == nil || !strings.Contains(err.Error(), "hard link or has holes") {
			t.Errorf("%s: %v", name, err)
		}
	}
	top := t.TempDir()
	u := &Unpacker{
		Root: newRoot(t, top), Top: "/x", Most: testMost, Plain: true, Umask: 0o027,
		In: bytes.NewReader(archive(t, "x", tar.Header{Typeflag: tar.TypeDir, Name: ".", Mode: 0o777},
			tar.Header{Typeflag: tar.TypeDir, Name: "d", Mode: 0o777}, tar.Header{Typeflag: tar.TypeReg, Name: "d/f", Mode: 0o666})),
	}
	if err := u.Unpack(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := picture(t, filepath.Join(top, "x"))
	if got["."] != "drwxr-x---" || got["d"] != "drwxr-x---" || got["d/f"] != "-rw-r-----x" {
		t.Errorf("%q", got)
	}
}
