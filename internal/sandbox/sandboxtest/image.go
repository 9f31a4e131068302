package sandboxtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/testrig"
)

// imageSpec is that of a sandbox whose root is the Subject's image.
func (s *suite) imageSpec() sandbox.Spec {
	s.Helper()
	if s.Root == nil {
		s.Skip("the driver is given no root filesystems")
	}
	spec := s.spec()
	spec.Root, spec.Limits.Disk = s.Root(s.T), 32<<20
	return spec
}

// testImage: the files of an image are what and whose they are in it, the
// sandbox's own places are its own whatever the image has there, and what is
// written stays in the sandbox that wrote it.
func testImage(s *suite) {
	spec := s.imageSpec()
	dir := spec.Root.Dir
	for name, uid := range map[string]int{"owned": sandbox.ToolUID, "foreign": 1} {
		path := filepath.Join(dir.Name(), name)
		testrig.Must(s, os.Mkdir(path, 0o755))
		testrig.Must(s, os.Chown(path, uid, uid))
		s.write(filepath.Join(path, "file"), "of the image\n", uid, 0o644)
	}
	for _, name := range []string{"dev", "run", "workspace"} {
		testrig.Must(s, os.Symlink("/owned", filepath.Join(dir.Name(), name)))
	}
	other := s.spec()
	other.Root, other.Limits.Disk = spec.Root, spec.Limits.Disk
	a, b := s.create(spec), s.create(other)
	for _, c := range []struct{ check, script, want string }{
		{"owners", "stat -c %u:%g /owned/file /foreign/file", "1000:1000\n1:1\n"},
		{"places", "stat -c %F /dev /run /workspace", "directory\ndirectory\ndirectory\n"},
		{"user", "id -un", "tool\n"},
		{"written", "echo changed >/owned/file && echo more >/owned/more && rm -f /foreign/file 2>/dev/null; cat /owned/file; ls /owned /foreign", "changed\n/foreign:\nfile\n\n/owned:\nfile\nmore\n"},
	} {
		if got := a.run(c.script).Output; got != c.want {
			s.holds(c.check, false, "%s: %q, want %q", c.script, got, c.want)
		}
	}
	if got := b.run("cat /owned/file; ls /owned").Output; got != "of the image\nfile\n" {
		s.Errorf("another sandbox of the image sees %q", got)
	}
	if got, err := os.ReadFile(filepath.Join(dir.Name(), "owned/file")); err != nil || string(got) != "of the image\n" {
		s.Errorf("the image has %q, %v", got, err)
	}
}

// testImageDisk: what is written to an image's root is bounded, in bytes and in
// files, for the sandbox that writes; with room again it works again.
func testImageDisk(s *suite) {
	spec := s.imageSpec()
	open := filepath.Join(spec.Root.Dir.Name(), "open")
	testrig.Must(s, os.Mkdir(open, 0o777))
	if err := os.Chmod(open, 0o777); err != nil { // whatever the umask
		s.Fatal(err)
	}
	b := s.create(spec)
	out := b.run("cd /open; head -c 64M /dev/zero >big; stat -c %s big; rm big; echo again >small && cat small").Output
	s.holds("bytes", strings.Contains(out, "No space left on device") && strings.HasSuffix(out, "\nagain\n"), "%q", out)
	out = b.run("cd /open; n=0; while echo >f$n; do n=$((n+1)); done 2>/dev/null; echo $n; rm f*; mkdir again && ls").Output
	var files int
	if _, err := fmt.Sscan(out, &files); err != nil {
		s.Fatalf("%q: %v", out, err)
	}
	s.holds("files", files > 100 && files <= int(spec.Limits.Disk)/(8<<10) && strings.Contains(out, "again"), "%q", out)
	spec = s.imageSpec()
	spec.Limits.Disk = 0
	s.refused(spec, nil, "an image, and no bound for what is written")
}
