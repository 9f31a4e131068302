package oci_test

import (
	"errors"
	"os"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
)

// Mounts lie in the worktree and in each other, in whatever order they come.
func TestNestedMounts(t *testing.T) {
	f := newFixture(t)
	tree, outer, inner := t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{tree + "/a/b", outer + "/in"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for dir, name := range map[string]string{tree: "tree", outer: "outer", inner: "inner"} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/"+name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	spec := f.Spec()
	spec.Worktree = sandbox.Worktree{Source: open(t, tree), Mode: client.WorktreeBind, Target: "/home/x/deep/project"}
	spec.Mounts = []sandbox.Mount{
		{Source: open(t, inner), Target: "/home/x/deep/project/a/b/in"},
		{Source: open(t, outer), Target: "/home/x/deep/project/a/b"},
		{Source: open(t, inner), Target: "/z"},
		{Source: open(t, inner), Target: "/home/x/deep/project-2"},
	}
	l := f.create(spec)
	if got := l.out("cd /home/x/deep/project && echo * a/b/* a/b/in/* /z/* ../project-2/*"); got != "a tree a/b/in a/b/outer a/b/in/inner /z/inner ../project-2/inner" {
		t.Errorf("inside: %s", got)
	}
	for _, dir := range []string{"a/b", "a/b/in", "/z"} {
		if r := l.sh("cd /home/x/deep/project && touch " + dir + "/new"); r.Code == 0 {
			t.Errorf("%s is writable", dir)
		}
	}
	if entries, err := os.ReadDir(tree + "/a/b"); err != nil || len(entries) != 0 {
		t.Errorf("mount has left %v in the worktree (%v)", entries, err)
	}
}

// A link anywhere on the way to a target is a refusal, wherever it leads.
func TestNestedMountTargets(t *testing.T) {
	f := newFixture(t)
	tree, cache := t.TempDir(), t.TempDir()
	for _, dir := range []string{tree + "/dir/sub", tree + "/other", cache + "/in"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		tree + "/link": "/etc", tree + "/root": "/", tree + "/dir/inner": "../dir", tree + "/same": "dir",
		tree + "/proc": "/proc/self/root", tree + "/out": "/run/toold/output", cache + "/away": "../other",
	} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(tree+"/file", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	mounts := func(targets ...string) (list []sandbox.Mount) {
		for _, target := range targets {
			list = append(list, sandbox.Mount{Source: open(t, cache), Target: sandbox.Workspace + target})
		}
		return list
	}
	for _, targets := range [][]string{
		{"/link"},
		{"/root"},
		{"/root/etc"},
		{"/dir/inner"},
		{"/dir/inner/sub"},
		{"/same"},
		{"/same/sub"},
		{"/proc"},
		{"/proc/tmp"},
		{"/out"},
		{"/file"},
		{"/file/x"},
		{"/missing"},
		{""},
		{"/dir", "/dir"},
		{"/dir", "/dir/away"},
		{"/dir", "/dir/sub"},
	} {
		spec := f.Spec()
		spec.Worktree = sandbox.Worktree{Source: open(t, tree), Mode: client.WorktreeBind, Target: sandbox.Workspace}
		spec.Mounts = mounts(targets...)
		sb, err := f.driver.Create(f.Ctx(), spec)
		if err == nil {
			sb.Close()
		}
		if !errors.Is(err, sandbox.ErrMountTarget) {
			t.Errorf("mounts at %q: %v, want %v", targets, err, sandbox.ErrMountTarget)
		}
	}
	// Control: plain directories take them.
	spec := f.Spec()
	spec.Worktree = sandbox.Worktree{Source: open(t, tree), Mode: client.WorktreeBind, Target: sandbox.Workspace}
	spec.Mounts = mounts("/dir/sub", "/other", "/dir/sub/in")
	f.create(spec)
}
