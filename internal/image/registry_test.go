package image

import (
	"slices"
	"testing"
)

func TestPull(t *testing.T) {
	s, host := newStore(t), newTestRegistry(t)
	src := simpleImage(t)
	push(t, host+"/tools/base:v1", src)
	var stages []Stage
	img, err := s.Pull(t.Context(), host+"/tools/base:v1", PullOptions{Progress: func(p Progress) {
		if n := len(stages); n == 0 || stages[n-1] != p.Stage {
			stages = append(stages, p.Stage)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"d 0755 0:0 .",
		"d 0755 0:0 bin",
		"- 0755 0:0 bin/sh #!shell\n",
		"d 0755 0:0 etc",
		"- 0644 0:0 etc/motd new",
	}
	if got := listing(t, rootfsOf(s, img)); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	id, _ := src.ConfigName()
	manifest, _ := src.Digest()
	if img.Digest != id.String() || img.Manifest != manifest.String() {
		t.Errorf("digests %s, %s; want %s, %s", img.Digest, img.Manifest, id, manifest)
	}
	if img.Size != 11 || img.Files != 5 || img.WorkingDir != "/src" || img.User != "1000" || !img.Created.Equal(testEpoch) {
		t.Errorf("described as %+v", img)
	}
	if want := []string{"PATH=/bin", "LANG=C.UTF-8"}; !slices.Equal(img.Env, want) {
		t.Errorf("env %q, want %q", img.Env, want)
	}
	if want := []Stage{StageResolve, StageDownload, StageUnpack, StageDownload, StageUnpack, StageCommit}; !slices.Equal(stages, want) {
		t.Errorf("stages %q, want %q", stages, want)
	}
	checkNothingLeft(t, s, 1)
}
