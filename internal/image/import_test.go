package image

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	ocilayout "github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/toold/toold/client"
)

// layoutOf writes an OCI layout of images, of which each has an annotation with
// its name, if that is not empty.
func layoutOf(t testing.TB, images map[string]v1.Image) string {
	t.Helper()
	dir := t.TempDir()
	l, err := ocilayout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range slices.Sorted(maps.Keys(images)) {
		var options []ocilayout.Option
		if n != "" {
			options = append(options, ocilayout.WithAnnotations(map[string]string{annotationRef: n}))
		}
		if err := l.AppendImage(images[n], options...); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// packed is a directory as a tar archive, as the system's tar would make it.
func packed(t testing.TB, path string) []byte {
	t.Helper()
	var entries []tarEntry
	err := filepath.WalkDir(path, func(p string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(path, p)
		switch {
		case err != nil || rel == ".":
			return err
		case d.IsDir():
			entries = append(entries, dir("./"+rel+"/"))
			return nil
		}
		content, err := os.ReadFile(p)
		entries = append(entries, file("./"+rel, string(content)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tarOf(t, entries...)
}

// savedOf is what docker save writes of images by their names.
func savedOf(t testing.TB, images map[string]v1.Image) []byte {
	t.Helper()
	refs := map[name.Reference]v1.Image{}
	for n, img := range images {
		ref, err := name.NewTag(n)
		if err != nil {
			t.Fatal(err)
		}
		refs[ref] = img
	}
	var b bytes.Buffer
	if err := tarball.MultiRefWrite(refs, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestImportForms: the same image in all its forms is the same image.
func TestImportForms(t *testing.T) {
	src := simpleImage(t)
	id, err := src.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	source := layoutOf(t, map[string]v1.Image{"tools:v1": src})
	oci := packed(t, source)
	saved := savedOf(t, map[string]v1.Image{"tools:v1": src})
	for form, raw := range map[string][]byte{
		"OCI archive": oci, "OCI archive, gzip": gzipped(oci), "OCI archive, zstd": zstded(t, oci),
		"docker save": saved, "docker save, gzip": gzipped(saved), "docker save, zstd": zstded(t, saved),
	} {
		for _, given := range []string{"", "other"} {
			t.Run(form+" as "+given, func(t *testing.T) {
				s := newStore(t)
				img, err := s.Import(t.Context(), given, bytes.NewReader(raw))
				checkSimple(t, s, img, err, id.String())
				want := []string{"tools:v1"}
				if given != "" {
					want = []string{"other:latest"}
				}
				if err == nil && !slices.Equal(img.Names, want) {
					t.Errorf("names %q, want %q", img.Names, want)
				}
			})
		}
	}
}

func checkSimple(t *testing.T, s *Store, img *client.Image, err error, id string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if img.Digest != id || img.Size != 11 {
		t.Errorf("got %+v, want the image %s", img, id)
	}
	if got := listing(t, rootfsOf(s, img)); !slices.Contains(got, "- 0644 0:0 etc/motd new") || len(got) != 5 {
		t.Errorf("got %q", got)
	}
	checkNothingLeft(t, s, 1)
}

// TestImportPlain: archives of a root filesystem, and that their identity
// follows from their content.
func TestImportPlain(t *testing.T) {
	s := newStore(t)
	raw := tarOf(t, dir("bin"), file("bin/sh", "x").mode(0o755), file("manifest.json", "{}"), file("oci-layout", "mine"), file("index.json", "[]"))
	var first string
	for name, form := range map[string][]byte{"plain": raw, "gz": gzipped(raw), "zst": zstded(t, raw)} {
		img, err := s.Import(t.Context(), name, bytes.NewReader(form))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if first == "" {
			first = img.Digest
		}
		if img.Digest != first || img.Architecture != runtime.GOARCH {
			t.Errorf("%s: %+v, want the digest %s", name, img, first)
		}
	}
	checkNothingLeft(t, s, 1)
	list, err := s.List(t.Context())
	if err != nil || len(list) != 1 || !slices.Equal(list[0].Names, []string{"gz:latest", "plain:latest", "zst:latest"}) {
		t.Errorf("got %+v, %v", list, err)
	}
	if _, err := s.Import(t.Context(), "", bytes.NewReader(raw)); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "say one") {
		t.Errorf("without a name: %v", err)
	}
}

// TestImportSeveral: which of several images is meant nobody can say. One that is
// listed once for each of its names is one.
func TestImportSeveral(t *testing.T) {
	a := imageOf(t, v1.Config{}, layerOf(t, file("a", "")))
	b := imageOf(t, v1.Config{}, layerOf(t, file("b", "")))
	several := map[string]v1.Image{"one:1": a, "two:2": b}
	for form, raw := range map[string][]byte{
		"docker save": savedOf(t, several), "layout": packed(t, layoutOf(t, several)),
		"tags only": packed(t, layoutOf(t, map[string]v1.Image{"1": a, "two:2": b})),
	} {
		s := newStore(t)
		_, err := s.Import(t.Context(), "x", bytes.NewReader(raw))
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "several") || !strings.Contains(err.Error(), "two:2") {
			t.Errorf("%s: %v", form, err)
		}
	}
	one := map[string]v1.Image{"one:1": a, "two:2": a}
	for form, raw := range map[string][]byte{"docker save": savedOf(t, one), "layout": packed(t, layoutOf(t, one))} {
		img, err := newStore(t).Import(t.Context(), "", bytes.NewReader(raw))
		if err != nil || !slices.Equal(img.Names, []string{"one:1", "two:2"}) {
			t.Errorf("%s with two names: %+v, %v", form, img, err)
		}
	}
}

// TestImportTagOnly: a tag alone is no name to be known by.
func TestImportTagOnly(t *testing.T) {
	s := newStore(t)
	raw := packed(t, layoutOf(t, map[string]v1.Image{"latest": simpleImage(t)}))
	if _, err := s.Import(t.Context(), "", bytes.NewReader(raw)); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "say one") {
		t.Errorf("got %v", err)
	}
	if _, err := s.Import(t.Context(), "mine", bytes.NewReader(raw)); err != nil {
		t.Error(err)
	}
}

// TestImportManyNames: an archive does not fill the store with names.
func TestImportManyNames(t *testing.T) {
	s := newStore(t)
	images := map[string]v1.Image{}
	img := simpleImage(t)
	for i := range maxNames + 1 {
		images[fmt.Sprintf("name:%d", i)] = img
	}
	raw := savedOf(t, images)
	if _, err := s.Import(t.Context(), "", bytes.NewReader(raw)); !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "101 names") {
		t.Errorf("got %v", err)
	}
	checkNothingLeft(t, s, 0)
	if _, err := s.Import(t.Context(), "mine", bytes.NewReader(raw)); err != nil {
		t.Error(err)
	}
}

func TestImportNames(t *testing.T) {
	s := newStore(t)
	raw := tarOf(t, file("a", ""))
	for name, want := range map[string]error{
		"UPPER": ErrInvalid, "a b": ErrInvalid, "x@sha256:" + strings.Repeat("0", 64): ErrInvalid,
		"sha256:" + strings.Repeat("0", 64): ErrInvalid, "a\nb": ErrInvalid,
		"reg.example:5000/a/b:c": nil,
	} {
		if _, err := s.Import(t.Context(), name, bytes.NewReader(raw)); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", name, err, want)
		}
	}
}

// TestImportPlatforms: of an image for several platforms, this host's is taken.
func TestImportPlatforms(t *testing.T) {
	mine := simpleImage(t)
	other := imageOf(t, v1.Config{}, layerOf(t, file("other", "")))
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}},
		mutate.IndexAddendum{Add: mine, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}},
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}}},
	)
	id, _ := mine.ConfigName()
	flat := t.TempDir()
	if _, err := ocilayout.Write(flat, index); err != nil {
		t.Fatal(err)
	}
	nested := t.TempDir()
	if _, err := ocilayout.Write(nested, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: index})); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{flat, nested} {
		img, err := newStore(t).Import(t.Context(), "x", bytes.NewReader(packed(t, path)))
		if err != nil || img.Digest != id.String() {
			t.Errorf("got %+v, %v", img, err)
		}
	}
	foreign := t.TempDir()
	if _, err := ocilayout.Write(foreign, mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}})); err != nil {
		t.Fatal(err)
	}
	if _, err := newStore(t).Import(t.Context(), "x", bytes.NewReader(packed(t, foreign))); !errors.Is(err, ErrPlatform) || !strings.Contains(err.Error(), "s390x") {
		t.Errorf("only for another platform: %v", err)
	}
}

// failingReader gives some bytes and then an error.
type failingReader struct {
	r   io.Reader
	err error
}

func (f *failingReader) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err == io.EOF {
		err = f.err
	}
	return n, err
}

func TestImportBrokenStream(t *testing.T) {
	s := newStore(t)
	broken := errors.New("the client went away")
	_, err := s.Import(t.Context(), "x", &failingReader{bytes.NewReader(tarOf(t, file("a", "x"))), broken})
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	checkNothingLeft(t, s, 0)
}

func FuzzImport(f *testing.F) {
	needRoot(f)
	f.Add(packed(f, layoutOf(f, map[string]v1.Image{"tools:v1": simpleImage(f)})))
	f.Add(savedOf(f, map[string]v1.Image{"tools:v1": simpleImage(f)}))
	f.Add(gzipped(tarOf(f, dir("a"), file("a/b", "x"))))
	f.Add(zstded(f, tarOf(f, symlink("a", "/"), file("a/b", "x"))))
	s := newStoreLimited(f, Limits{Bytes: 1 << 20, Entries: 1000, ConfigBytes: 1 << 16})
	f.Fuzz(func(t *testing.T, raw []byte) {
		img, err := s.Import(t.Context(), "fuzz", bytes.NewReader(raw))
		if err != nil {
			checkNothingLeft(t, s, 0)
			return
		}
		checkSurvey(t, rootfsOf(s, img))
		if err := s.Remove(t.Context(), img.Digest); err != nil {
			t.Fatal(err)
		}
		checkNothingLeft(t, s, 0)
	})
}
