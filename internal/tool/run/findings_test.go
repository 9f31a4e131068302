package run

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestFindings: what is kept of a tree of any size is what a listing shows of it, in
// whichever order the files come.
func TestFindings(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	for i := range 500 {
		c := newChooser(seed + uint64(i))
		kept := newFindings()
		kept.most = listLimit + c.IntN(300)
		all := map[string]bool{} // path → directory
		for range c.IntN(3000) {
			path := ""
			for range c.IntN(1 + c.IntN(6)) {
				path += fmt.Sprintf("d%d/", c.IntN(1+c.IntN(40)))
			}
			path += fmt.Sprintf("f%d", c.IntN(1+c.IntN(500)))
			kept.add(path)
			all[path] = false
			for j, r := range path {
				if r == '/' {
					all[path[:j]] = true
				}
			}
		}
		if got, want := listed100(kept.top), first100(all); !slices.Equal(got, want) {
			t.Fatalf("seed %d: got %q\nwant %q", seed+uint64(i), got, want)
		}
		if kept.count > max(kept.most, listLimit*(listLimit+2))+8 {
			t.Fatalf("seed %d: %d entries are kept", seed+uint64(i), kept.count)
		}
	}
}

// listed100 are the entries that a listing of f shows, in the order in which it comes to
// them.
func listed100(f *findings) (list []string) {
	type at struct {
		dir  *findings
		path string
	}
	for dirs := []at{{f, ""}}; len(dirs) > 0 && len(list) < listLimit; dirs = dirs[1:] {
		for _, e := range dirs[0].dir.entries {
			if list = append(list, dirs[0].path+e.name); len(list) == listLimit {
				break
			}
			if e.dir {
				dirs = append(dirs, at{e, dirs[0].path + e.name + "/"})
			}
		}
	}
	return list
}

// first100 is the same of all paths.
func first100(all map[string]bool) (list []string) {
	below := map[string][]string{}
	for _, path := range slices.Sorted(maps.Keys(all)) {
		dir := path[:max(0, strings.LastIndexByte(path, '/'))]
		below[dir] = append(below[dir], path)
	}
	for dirs := []string{""}; len(dirs) > 0 && len(list) < listLimit; dirs = dirs[1:] {
		children := below[dirs[0]]
		slices.SortStableFunc(children, func(a, b string) int {
			if all[a] != all[b] {
				if all[a] {
					return -1
				}
				return 1
			}
			return strings.Compare(a, b)
		})
		for _, path := range children {
			if list = append(list, path); len(list) == listLimit {
				break
			}
			if all[path] {
				dirs = append(dirs, path)
			}
		}
	}
	return list
}
