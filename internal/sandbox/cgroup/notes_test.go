package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A host on which nothing bounds what sockets keep says so, and no other does.
func TestNotesOfSockets(t *testing.T) {
	t.Parallel()
	v1 := t.TempDir()
	if err := os.Mkdir(filepath.Join(v1, "toold"), 0o755); err != nil {
		t.Fatal(err)
	}
	tree := &Tree{parent: "/toold", v1: map[string]string{"memory": v1}}
	said := func() bool {
		return slices.ContainsFunc(tree.Notes(), func(s string) bool { return strings.Contains(s, "TCP and UDP sockets") })
	}
	if !said() {
		t.Error("v1 without an account of sockets: nothing is said")
	}
	if err := os.WriteFile(filepath.Join(v1, "toold", socketsV1), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if said() {
		t.Error("v1 with an account of sockets: it is said that there is none")
	}
	tree = &Tree{parent: "/toold"}
	if said() {
		t.Error("without any limit of memory sockets are spoken of")
	}
}
