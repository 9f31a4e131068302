package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/toold/toold/internal/config"
)

func TestToolPath(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	mustNil(t, err)
	mustNil(t, os.Mkdir(dir+"/bin", 0o755))
	sandbox := config.Default().Sandbox
	for _, tt := range []struct {
		name    string
		sandbox func(s *config.Sandbox)
		path    string
		want    string
	}{
		{"a directory has its own programs", func(s *config.Sandbox) { s.RootFS = dir }, "/opt/x:" + dir, "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		{"what a session sees", func(s *config.Sandbox) { s.HostPaths = []string{dir} }, "/usr/bin:" + dir + "/bin:relative:" + dir + "/absent:" + dir + "/bin", dir + "/bin"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := sandbox
			tt.sandbox(&s)
			if got := toolPath(&s, tt.path); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
	if isVisible("/usrlocal", []string{"/usr"}) {
		t.Error("/usrlocal is not in /usr")
	}
}

func TestFindRuntimes(t *testing.T) {
	own := filepath.Join(t.TempDir(), "mine")
	mustNil(t, os.WriteFile(own, []byte("#!/bin/sh\n"), 0o755))
	paths, def, err := findRuntimes(own)
	if err != nil || def != "mine" || paths["mine"] != own {
		t.Errorf("got %v, %q, %v", paths, def, err)
	}
	_, _, err = findRuntimes(own + "-absent")
	wantError(t, err, "is not an executable file")
	t.Setenv("PATH", t.TempDir())
	_, _, err = findRuntimes("crun")
	wantError(t, err, `no OCI runtime "crun"`)
}
