package sandboxtest

import (
	"archive/tar"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// HostImage writes a small root filesystem as a tar archive: programs of this host,
// by their names in PATH, with the libraries that they load, and more files, by their
// paths in the image. It is for drivers whose tests need an image, where no registry
// is. What of names is not installed is left out.
func HostImage(w io.Writer, more map[string]string, names ...string) error {
	t := tar.NewWriter(w)
	for _, dir := range []string{"etc/", "home/", "tmp/", "usr/", "usr/bin/", "usr/lib/", "usr/lib64/", "var/", "var/tmp/"} {
		if err := t.WriteHeader(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
			return err
		}
	}
	for _, link := range []string{"bin", "lib", "lib64"} {
		if err := t.WriteHeader(&tar.Header{Name: link, Linkname: "usr/" + link, Typeflag: tar.TypeSymlink, Mode: 0o777}); err != nil {
			return err
		}
	}
	files := map[string]string{} // where it is in the image → where it is here
	maps.Copy(files, more)
	for _, name := range names {
		program, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		files[path.Join("usr/bin", name)] = program
		for _, l := range libraries(program) {
			files[path.Join("usr", strings.TrimPrefix(strings.TrimPrefix(l, "/"), "usr/"))] = l
		}
	}
	for name, file := range files {
		if err := AddFile(t, name, file); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return t.Close()
}

// libraries are those that a program loads when it starts.
func libraries(program string) []string {
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		return nil // it is static, or a script
	}
	var list []string
	for word := range strings.FieldsSeq(string(out)) {
		if filepath.IsAbs(word) {
			list = append(list, word)
		}
	}
	return list
}

// AddFile adds what a path leads to, under a name of its own, with its mode.
func AddFile(t *tar.Writer, name, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if err := t.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: int64(st.Mode().Perm()), Size: st.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(t, f)
	return err
}
