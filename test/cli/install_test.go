package cli

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What `make install` puts into a host is whole: each command has its man page, each
// shell its completions. `make uninstall` takes all of it away, and nothing else.
func TestInstall(t *testing.T) {
	if why != "" {
		t.Skip(why)
	}
	dir := t.TempDir()
	script := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("../../scripts/install", args...)
		cmd.Env = append(os.Environ(), "DESTDIR="+dir, "PREFIX=/usr", "BIN="+programs)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	foreign := []string{"usr/share/man/man1/tool.1", "usr/share/doc/toold/notes", "etc/toold/config.toml", "var/lib/toold/toold.db"}
	for _, name := range foreign {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	printed := script()
	got := installedFiles(t, dir)
	for _, name := range []string{
		"usr/bin/toold", "usr/bin/toolctl", "usr/libexec/toold/toolagent", "usr/libexec/toold/runc", "usr/lib/systemd/system/toold.service",
		"usr/share/man/man1/toolctl.1", "usr/share/man/man1/toolctl-exec.1", "usr/share/man/man1/toolctl-session-create.1",
		"usr/share/man/man8/toold.8", "usr/share/man/man5/toold.toml.5", "usr/share/doc/toold/examples/rulesets/ci.toml",
		"usr/share/bash-completion/completions/toolctl", "usr/share/zsh/site-functions/_toolctl", "usr/share/fish/vendor_completions.d/toolctl.fish",
	} {
		if !slices.Contains(got, name) {
			t.Errorf("there is no %s", name)
		}
	}
	for _, name := range got {
		if !slices.Contains(foreign, name) && !strings.Contains(printed, dir+"/"+name+"\n") {
			t.Errorf("%s was not named", name)
		}
	}
	out, err := exec.Command("bash", "-c", "source "+dir+"/usr/share/bash-completion/completions/toolctl && complete -p toolctl").CombinedOutput()
	if err != nil {
		t.Errorf("completions: %v\n%s", err, out)
	}
	// A page of an older version goes too.
	if err := os.WriteFile(filepath.Join(dir, "usr/share/man/man1/toolctl-old.1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	script("--uninstall")
	if got := installedFiles(t, dir); !slices.Equal(got, slices.Sorted(slices.Values(foreign))) {
		t.Errorf("left: %v", got)
	}
	if _, err := os.Lstat(dir + "/usr/libexec/toold"); err == nil {
		t.Error("an empty directory of its own is left")
	}
	script("--uninstall") // there is nothing more to do
}

// installedFiles are the files below dir, in order.
func installedFiles(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, strings.TrimPrefix(p, dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	return files
}
