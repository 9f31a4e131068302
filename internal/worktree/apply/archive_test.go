package apply

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/fault"
)

func added(name, content string) entry {
	return entry{Header: tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, content: content, status: "added"}
}

func addedDir(name string) entry {
	return entry{Header: tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755}, status: "added"}
}

func addedLink(name, to string) entry {
	return entry{Header: tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}, status: "added"}
}

func deleted(name, old string) entry {
	return entry{Header: tar.Header{Name: name, Typeflag: tar.TypeReg}, status: "deleted", old: old}
}

// Archives as no sandbox of ours writes them are refused before anything is written.
func TestHostileArchives(t *testing.T) {
	with := func(e entry, f func(*entry)) entry { f(&e); return e }
	of := func(e ...entry) []byte { return pack(t, e) }
	ok := added("ok", "ok")
	sum := strings.Repeat("0", 64)
	for name, archive := range map[string][]byte{
		"nothing":                   {},
		"text":                      []byte(strings.Repeat("garbage", 1000)),
		"absolute":                  of(ok, added("/etc/x", "")),
		"up":                        of(ok, added("../x", "")),
		"up within":                 of(ok, addedDir("a"), added("a/../../x", "")),
		"only up":                   of(ok, addedDir("..")),
		"the top":                   of(ok, addedDir(".")),
		"the top by a slash":        of(ok, addedDir("/")),
		"dot":                       of(ok, added("./x", "")),
		"two slashes":               of(ok, addedDir("a"), added("a//x", "")),
		"a slash at the end":        of(ok, addedLink("x/", "y")),
		"long name":                 of(ok, added(strings.Repeat("n", 256), "")),
		"long path":                 of(ok, added(strings.Repeat("n/", 2100)+"n", "")),
		"long target":               of(ok, addedLink("x", strings.Repeat("t", 5000))),
		"no target":                 of(ok, addedLink("x", "")),
		"twice":                     of(ok, added("x", "1"), added("x", "2")),
		"twice, of two types":       of(ok, addedDir("x"), addedLink("x", "/etc")),
		"twice, by a slash":         of(ok, addedDir("x"), addedDir("x/")),
		"below a link":              of(addedLink("x", "/etc"), added("x/passwd", "")),
		"below a link that follows": of(added("x/passwd", ""), addedLink("x", "/etc")),
		"below a file":              of(added("x", ""), added("x/y", "")),
		"below what was deleted":    of(deleted("x", "dir"), added("x/y", "")),
		"it was below a new file":   of(added("x", ""), deleted("x/y", "file")),
		"it was below a link":       of(deleted("x", "link"), deleted("x/y", "file")),
		"old below new":             of(addedDir("x"), deleted("x/y", "file")),
		"deep below a link":         of(addedLink("x", "/etc"), added("x/y/z", "")),
		"hard link":                 of(ok, entry{Header: tar.Header{Name: "x", Typeflag: tar.TypeLink, Linkname: "ok"}, status: "added"}),
		"device":                    of(ok, entry{Header: tar.Header{Name: "x", Typeflag: tar.TypeChar, Devmajor: 1}, status: "added"}),
		"no status":                 of(ok, with(added("x", ""), func(e *entry) { e.status = "" })),
		"unknown status":            of(ok, with(added("x", ""), func(e *entry) { e.status = "renamed" })),
		"added, but it was there":   of(ok, with(added("x", ""), func(e *entry) { e.old = "file" })),
		"modified, but another":     of(ok, with(added("x", ""), func(e *entry) { e.status, e.old = "modified", "dir" })),
		"type, but the same":        of(ok, with(added("x", ""), func(e *entry) { e.status, e.old = "type", "file" })),
		"type of nothing":           of(ok, with(added("x", ""), func(e *entry) { e.status = "type" })),
		"deleted, and was not":      of(ok, deleted("x", "")),
		"deleted with content":      of(with(deleted("x", "file"), func(e *entry) { e.content = "x" }), ok),
		"deleted directory as one":  of(ok, with(deleted("x", "dir"), func(e *entry) { e.Typeflag = tar.TypeDir })),
		"unknown old type":          of(ok, with(deleted("x", "file"), func(e *entry) { e.old = "pipe" })),
		"half a hash":               of(ok, with(deleted("x", "file"), func(e *entry) { e.sum = sum[:32] })),
		"no hex":                    of(ok, with(deleted("x", "file"), func(e *entry) { e.sum = strings.Repeat("g", 64) })),
		"hash of a directory":       of(ok, with(deleted("x", "dir"), func(e *entry) { e.sum = sum })),
		"other records":             of(ok, with(added("x", ""), func(e *entry) { e.PAXRecords = map[string]string{"TOOLD.run": "x"} })),
		"attributes":                of(ok, with(added("x", ""), func(e *entry) { e.PAXRecords = map[string]string{"SCHILY.xattr.user.x": "x"} })),
		"more behind its end":       append(of(ok), of(added("y", ""))...),
		"much behind its end":       append(of(ok), make([]byte, 1<<20)...),
		"no end":                    of(ok)[:3*512],
		"half an end":               of(added("x", strings.Repeat("\x00", 4096)))[:3*512+4096],
	} {
		g := begin(t, tree(t, map[string]string{"keep": "k"}))
		_, err := g.job.Run(t.Context(), bytes.NewReader(archive))
		if !errors.Is(err, ErrArchive) || !errors.Is(err, fault.Sandbox) {
			t.Errorf("%s: got %v", name, err)
		}
		if got := look(t, g.source); len(got) != 1 {
			t.Errorf("%s: there is %q", name, got)
		}
		tidy(t, g.job.Dir)
	}
}

// Wherever an archive is cut, it is refused.
func TestCutArchives(t *testing.T) {
	whole := pack(t, []entry{added("a", "content"), addedDir("d"), added("d/zeros", strings.Repeat("\x00", 2048)), addedLink("l", "a")})
	g := begin(t, tree(t, nil))
	for n := range whole {
		if n%64 != 0 && n%512 > 2 && n%512 < 510 {
			continue
		}
		if _, err := g.job.Run(t.Context(), bytes.NewReader(whole[:n])); !errors.Is(err, ErrArchive) {
			t.Errorf("%d of %d bytes: got %v", n, len(whole), err)
		}
	}
	lost := errors.New("connection lost")
	if _, err := g.job.Run(t.Context(), iotest.TimeoutReader(bytes.NewReader(whole))); err == nil {
		t.Error("an error of the reader is lost")
	}
	if _, err := g.job.Run(t.Context(), iotest.ErrReader(lost)); !errors.Is(err, lost) {
		t.Errorf("got %v", err)
	}
	if got := look(t, g.source); len(got) != 0 {
		t.Errorf("there is %.100q", got)
	}
	tidy(t, g.job.Dir)
	if _, err := g.job.Run(t.Context(), iotest.OneByteReader(bytes.NewReader(whole))); err != nil {
		t.Error(err)
	}
}

// What a few bytes could make of themselves is bounded.
func TestLimits(t *testing.T) {
	many := []entry{}
	for i := range 50 {
		many = append(many, added(fmt.Sprint(i), "0123456789"))
	}
	for name, l := range map[string]Limits{
		"bytes": {Bytes: 400, Entries: 100, Names: 1000}, "entries": {Bytes: 1000, Entries: 20, Names: 1000}, "names": {Bytes: 1000, Entries: 100, Names: 50},
	} {
		g := begin(t, tree(t, nil))
		g.job.Limits = l
		if _, err := g.job.Run(t.Context(), bytes.NewReader(pack(t, many))); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: got %v", name, err)
		}
		if got := look(t, g.source); len(got) != 0 {
			t.Errorf("%s: there is %q", name, got)
		}
		tidy(t, g.job.Dir)
	}
}

// Bits of modes above the permissions are not for files that others run.
func TestSetIDBits(t *testing.T) {
	g := begin(t, tree(t, nil))
	e := added("x", "#!/bin/sh")
	e.Mode = 0o6755
	_, err := g.job.Run(t.Context(), bytes.NewReader(pack(t, []entry{e})))
	must(t, err)
	if info, err := os.Lstat(g.source + "/x"); err != nil || info.Mode() != 0o755 {
		t.Errorf("got %v, %v", info, err)
	}
}

// compare puts each directory before what is in it, and nothing between them.
func TestCompare(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	random := func() string {
		b := make([]byte, 1+r.IntN(5))
		for i := range b {
			b[i] = "a-/\xff."[r.IntN(5)]
		}
		return string(b)
	}
	for range 10_000 {
		a, b := random(), random()
		want := strings.Compare(strings.ReplaceAll(a, "/", "\x00"), strings.ReplaceAll(b, "/", "\x00"))
		if got := compare(a, b); (got < 0) != (want < 0) || (got > 0) != (want > 0) {
			t.Fatalf("%q and %q: %d, want %d", a, b, got, want)
		}
	}
}

// Whatever an archive holds: it is refused as a whole, or what is in it was checked.
func FuzzArchive(f *testing.F) {
	f.Add(pack(f, []entry{added("a", "x"), addedDir("d"), addedLink("d/l", "a"), deleted("gone", "dir"), deleted("gone/x", "link")}))
	f.Add(pack(f, nil))
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, archive []byte) {
		d, err := openState(t.Context(), t.TempDir())
		must(t, err)
		defer d.close()
		sp, err := newSpool(t.Context(), d, Limits{Bytes: 1 << 20, Entries: 100, Names: 1 << 16}, &Job{})
		must(t, err)
		defer sp.f.Close()
		changes, err := sp.read(t.Context(), bytes.NewReader(archive))
		if err != nil {
			return
		}
		for i, c := range changes {
			if checkPath(c.path) != nil || i > 0 && compare(changes[i-1].path, c.path) >= 0 {
				t.Errorf("%q is taken", c.path)
			}
			if c.put() != (c.status != client.ChangeDeleted) || c.at+c.size > sp.at && c.put() || c.size < 0 {
				t.Errorf("%+v", c)
			}
		}
	})
}

// What reads files ends with its request, though they are one hole that is read for days.
func TestCancelledInHoles(t *testing.T) {
	t.Parallel()
	const size = 1 << 43
	given := errors.New("given up")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(given)
	d, err := openState(t.Context(), t.TempDir())
	must(t, err)
	defer d.close()
	sp, err := newSpool(ctx, d, Limits{Bytes: size, Entries: 1, Names: 1}, &Job{})
	must(t, err)
	defer sp.f.Close()
	for _, data := range [][][2]int64{{}, {{size - 1, 1}}} {
		if err := sp.keep(&change{kind: beneath.File, size: size, data: data}, strings.NewReader("x")); !errors.Is(err, given) {
			t.Errorf("a hole of a session, before %v: %v", data, err)
		}
	}
	g := begin(t, tree(t, map[string]string{"x": ""}))
	must(t, os.Truncate(g.source+"/x", size))
	dir, err := os.Open(g.source)
	must(t, err)
	defer dir.Close()
	if _, err := versionOf(int(dir.Fd()), "x", sp.buf, nil); !errors.Is(err, given) {
		t.Errorf("a hole of the source: %v", err)
	}
}
