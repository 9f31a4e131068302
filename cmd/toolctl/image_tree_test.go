package main

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// archiveOf reads what openTree makes of a directory.
func archiveOf(t *testing.T, dir string) ([]byte, error) {
	t.Helper()
	r, err := openTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	return io.ReadAll(r)
}

func TestTree(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "a"), "content", 0o644)
	for _, err := range []error{
		os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "b")),
		os.Symlink("/etc/shadow", filepath.Join(dir, "c")),
		os.Mkdir(filepath.Join(dir, "d"), 0o755),
		syscall.Mkfifo(filepath.Join(dir, "d", "e"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	first, err := archiveOf(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := tar.NewReader(bytes.NewReader(first)); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		content, _ := io.ReadAll(r)
		got = append(got, strings.TrimSpace(string(h.Typeflag)+" "+h.Name+" "+h.Linkname+string(content)))
	}
	if want := []string{"5 ./", "0 a content", "1 b a", "2 c /etc/shadow", "5 d/", "6 d/e"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	// What does not change the content does not change the image.
	path := filepath.Join(dir, "a")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Now().Add(-time.Hour), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if again, err := archiveOf(t, dir); err != nil || !bytes.Equal(first, again) {
		t.Errorf("the same directory makes another archive: %v", err)
	}
}

func TestTreeRefusesRemovals(t *testing.T) {
	for _, name := range []string{".wh.passwd", ".wh..wh..opq"} {
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, name), "lost", 0o644)
		if _, err := archiveOf(t, dir); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "removal") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
