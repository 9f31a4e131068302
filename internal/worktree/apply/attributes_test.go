package apply

import (
	"archive/tar"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/tool/run/treediff"
)

// aclOf is an access control list that lets another user read and write.
func aclOf(perm uint32, user uint32) []byte {
	acl := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range [][3]uint32{{1, perm >> 6 & 7, 1<<32 - 1}, {2, 6, user}, {4, perm >> 3 & 7, 1<<32 - 1}, {0x10, 7, 1<<32 - 1}, {0x20, perm & 7, 1<<32 - 1}} {
		acl = binary.LittleEndian.AppendUint16(acl, uint16(e[0]))
		acl = binary.LittleEndian.AppendUint16(acl, uint16(e[1]))
		acl = binary.LittleEndian.AppendUint32(acl, e[2])
	}
	return acl
}

// attributesIn are the attributes of a file that count, and when it was written.
func attributesIn(t testing.TB, p string) string {
	t.Helper()
	buf := make([]byte, 64<<10)
	n, err := unix.Llistxattr(p, buf)
	must(t, err)
	var all []string
	for name := range strings.SplitSeq(string(buf[:n]), "\x00") {
		if !strings.HasPrefix(name, "user.") && name != aclAttribute {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(p, name, value)
		must(t, err)
		all = append(all, fmt.Sprintf("%q=%x", name, value[:n]))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func timeOf(t testing.TB, p string) int64 {
	t.Helper()
	info, err := os.Lstat(p)
	must(t, err)
	return info.ModTime().UnixNano()
}

// decorate gives files of a tree random attributes and times.
func decorate(t testing.TB, r *rand.Rand, dir string, names []string, acls bool) {
	for _, name := range names {
		p := filepath.Join(dir, name)
		info, err := os.Lstat(p)
		must(t, err)
		if info.IsDir() && acls {
			continue // a list of a directory is its own
		}
		if info.Mode()&os.ModeSymlink == 0 {
			open := opened(t, p)
			for _, x := range []string{"user.a", "user.\xff=", "user." + strings.Repeat("n", 200)} {
				if r.IntN(3) == 0 {
					err := unix.Setxattr(p, x, make([]byte, r.IntN(300)), 0)
					if errors.Is(err, unix.EOPNOTSUPP) {
						t.Skip("no extended attributes here")
					}
					must(t, err)
				}
			}
			open()
			if acls && r.IntN(2) == 0 {
				must(t, unix.Setxattr(p, aclAttribute, aclOf(uint32(info.Mode().Perm()), 4711), 0))
			}
		}
		if !info.IsDir() {
			at := unix.NsecToTimespec(r.Int64N(1 << 60))
			must(t, unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW))
		}
	}
}

// TestAttributes: what an apply writes has the attributes and times that `cp -a` of the worktree
// would give it, and a file that it replaces keeps the access control list that it has.
func TestAttributes(t *testing.T) {
	t.Parallel()
	files, lists := 0, 0
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		source := tree(t, nil)
		grow(t, r, source, 25)
		decorate(t, r, source, slices.Sorted(maps.Keys(look(t, source))), true)
		give(t, source)
		g := begin(t, source)
		disturb(t, r, g.work, 20)
		before, now := look(t, g.source), look(t, g.work)
		var changed []string
		for name, is := range now {
			if before[name] != is && (!strings.HasPrefix(is, "dir") || !strings.HasPrefix(before[name], "dir")) {
				changed = append(changed, name)
			}
		}
		slices.Sort(changed)
		decorate(t, r, g.work, changed, false)
		give(t, g.work)
		_, err := g.applyArchive(client.ApplyRequest{IncludeSensitive: true}, g.agents())
		must(t, err)
		for _, name := range changed {
			from, to := filepath.Join(g.work, name), filepath.Join(g.source, name)
			want := split(attributesIn(t, from), false)
			if strings.HasPrefix(before[name], "file") && strings.HasPrefix(now[name], "file") { // as chmod leaves it
				info, err := os.Lstat(from)
				must(t, err)
				must(t, os.Chmod(filepath.Join(g.base, name), info.Mode().Perm()))
				want = append(split(attributesIn(t, filepath.Join(g.base, name)), true), want...)
			}
			if got := strings.Fields(attributesIn(t, to)); !slices.Equal(got, want) {
				t.Errorf("seed %d: %q has %.100q; want %.100q", seed, name, got, want)
			}
			lists += strings.Count(strings.Join(want, " "), aclAttribute)
			if files++; !strings.HasPrefix(now[name], "dir") && timeOf(t, to) != timeOf(t, from) {
				t.Errorf("seed %d: %q is of %d; want %d", seed, name, timeOf(t, to), timeOf(t, from))
			}
		}
		if d := differ(look(t, g.source), now); len(d) > 0 {
			t.Errorf("seed %d: %q", seed, d)
		}
	}
	if files < 100 || lists < 5 {
		t.Errorf("only %d files, %d lists", files, lists)
	}
}

// split gives the access control list of some attributes, or the others.
func split(all string, list bool) []string {
	return slices.DeleteFunc(strings.Fields(all), func(x string) bool { return strings.Contains(x, aclAttribute) != list })
}

// TestAttributesOfOlderAgents: what they do not tell stays as it is in the source.
func TestAttributesOfOlderAgents(t *testing.T) {
	t.Parallel()
	g := begin(t, tree(t, map[string]string{"a": "1"}))
	name := filepath.Join(g.source, "a")
	if err := unix.Setxattr(name, "user.a", []byte("kept"), 0); err != nil {
		t.Skip("no extended attributes here: ", err)
	}
	g.job.Since = tick()
	write(t, g.work, map[string]string{"a": "2"})
	g.mustApply(client.ApplyRequest{})
	if got := attributesIn(t, name); got != fmt.Sprintf("%q=%x", "user.a", "kept") {
		t.Errorf("it has %q", got)
	}
}

// TestHostileAttributes: no session says anything of attributes that are not its user's, or sends
// more than there may be.
func TestHostileAttributes(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"security": `{"user":[{"name":"c2VjdXJpdHkuY2FwYWJpbGl0eQ==","value":""}]}`,
		"list":     `{"user":[{"name":"c3lzdGVtLnBvc2l4X2FjbF9hY2Nlc3M=","value":""}]}`,
		"no name":  `{"user":[{"name":"dXNlci4=","value":""}]}`,
		"NUL":      `{"user":[{"name":"dXNlci5hAGI=","value":""}]}`,
		"known":    `{"known":true}`,
		"negative": `{"left":-1}`,
		"no JSON":  `{`,
		"base64":   `{"user":[{"name":"!","value":""}]}`,
		"large":    `{"user":[{"name":"dXNlci5h","value":"` + strings.Repeat("AAAA", 30_000) + `"}]}`,
	} {
		var a attributes
		if err := a.read(map[string]string{recordAttributes: text}, "file"); err == nil {
			t.Errorf("%s: %+v", name, a)
		}
	}
	var a attributes
	if err := a.read(map[string]string{treediff.RecordAttributes: `{"user":[{"name":"dXNlci5h","value":"AA=="}],"left":2}`}, "link"); err == nil {
		t.Error("a link with attributes")
	}
	if err := a.read(map[string]string{treediff.RecordAttributes: `{"user":[{"name":"dXNlci5h","value":"AA=="}],"left":2}`}, "file"); err != nil || !a.Known || a.Left != 2 || len(a.User) != 1 {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestAttributesAreBounded: those beyond the bound of all files are left out and counted.
func TestAttributesAreBounded(t *testing.T) {
	t.Parallel()
	g := begin(t, tree(t, nil))
	value := strings.Repeat("AAAA", 20_000)
	text := `{"user":[` + strings.Repeat(`{"name":"dXNlci5h","value":"`+value+`"},`, 3) + `{"name":"dXNlci5i","value":""}]}`
	var entries []entry
	for i := range 150 {
		entries = append(entries, entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprint(i), Mode: 0o644, PAXRecords: map[string]string{recordAttributes: text}}, status: "added"})
	}
	a, err := g.applyArchive(client.ApplyRequest{DryRun: true}, pack(t, entries))
	must(t, err)
	if want := 150 - maxAllAttributes/(3*(60_000+6)+6); a.AttributesLeft != want {
		t.Errorf("%d lack attributes; want %d", a.AttributesLeft, want)
	}
}
