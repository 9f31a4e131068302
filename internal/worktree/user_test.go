package worktree_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/thread"
	"github.com/toold/toold/internal/worktree"
)

const (
	alice, bob  = 4001, 4002
	team, wheel = 4003, 4004
)

// shared makes a root that several users may enter, with directories of theirs: name,
// owner and mode.
func shared(t *testing.T, dirs [][3]int, names ...string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can work as others")
	}
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err == nil {
		err = os.Chmod(filepath.Dir(root), 0o755)
	}
	for i, d := range dirs {
		if err == nil {
			name := filepath.Join(root, names[i])
			err = errors.Join(unix.Mkdir(name, 0o700), os.Chown(name, d[0], d[1]), unix.Chmod(name, uint32(d[2])))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// grant gives a user rights on a file by an access control list, as setfacl does.
func grant(t *testing.T, file string, uid, perm uint32) {
	t.Helper()
	const userObj, user, groupObj, mask, other, none = 1, 2, 4, 0x10, 0x20, 0xffff_ffff
	acl := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range [][3]uint32{{userObj, 7, none}, {user, perm, uid}, {groupObj, 0, none}, {mask, 7, none}, {other, 0, none}} {
		acl = binary.LittleEndian.AppendUint16(acl, uint16(e[0]))
		acl = binary.LittleEndian.AppendUint16(acl, uint16(e[1]))
		acl = binary.LittleEndian.AppendUint32(acl, e[2])
	}
	if err := unix.Setxattr(file, "system.posix_acl_access", acl, 0); err != nil {
		t.Skip("no access control lists here: ", err)
	}
}

// A user gets what he could open himself, with his own ids; toold gets all.
func TestPinAsUser(t *testing.T) {
	root := shared(t, [][3]int{
		{alice, alice, 0o700},
		{alice, alice, 0o755},
		{bob, bob, 0o700},
		{0, 0, 0o700},
		{0, 0, 0o777},
		{0, 0, 0o711},
		{alice, 0, 0o700},
		{0, 0, 0o755},
		{0, team, 0o2770},
		{0, team, 0o750},
		{0, wheel, 0o770},
		{0, 0, 0o744},
		{0, 0, 0o1777},
		{bob, bob, 0o700},
		{bob, bob, 0o700},
		{alice, alice, 0o070},
	}, "alice", "alice/sub", "bob", "roots", "roots/open", "pass", "pass/alice", "readable", "team", "teamread", "wheel", "list", "all", "granted", "shown", "shut")
	grant(t, filepath.Join(root, "granted"), alice, 7)
	grant(t, filepath.Join(root, "shown"), alice, 5)
	if err := errors.Join(os.Symlink("../bob", root+"/alice/bob"), os.Symlink("alice", root+"/bob/alice")); err != nil {
		t.Fatal(err)
	}
	user := &thread.User{UID: alice, GID: alice, Groups: []uint32{team}}
	for _, tt := range []struct {
		source string
		read   error
		write  error
		gid    uint32
	}{
		{"alice", nil, nil, alice},
		{"alice/sub", nil, nil, alice},
		{"", nil, worktree.ErrReadOnly, alice},
		{"bob", worktree.ErrNotAllowed, worktree.ErrNotAllowed, 0},
		{"roots", worktree.ErrNotAllowed, worktree.ErrNotAllowed, 0},
		{"roots/open", worktree.ErrNotAllowed, worktree.ErrNotAllowed, 0},
		{"roots/missing", worktree.ErrNotAllowed, worktree.ErrNotAllowed, 0},
		{"missing", worktree.ErrInvalidPath, worktree.ErrInvalidPath, 0},
		{"pass", worktree.ErrNotAllowed, worktree.ErrNotAllowed, 0},
		{"pass/alice", nil, nil, alice},
		{"readable", nil, worktree.ErrReadOnly, alice},
		{"team", nil, nil, team},
		{"teamread", nil, worktree.ErrReadOnly, team},
		{"wheel", worktree.ErrNotAllowed, worktree.ErrNotAllowed, 0},
		{"list", worktree.ErrNotAllowed, worktree.ErrNotAllowed, 0},
		{"all", nil, nil, alice},
		{"granted", nil, nil, alice},
		{"shown", nil, worktree.ErrReadOnly, alice},
		{"shut", worktree.ErrNotAllowed, worktree.ErrNotAllowed, 0},
		{"alice/bob", worktree.ErrInvalidPath, worktree.ErrInvalidPath, 0},
		{"bob/alice", worktree.ErrNotAllowed, worktree.ErrNotAllowed, 0},
	} {
		source := filepath.Join(root, tt.source)
		for write, want := range map[bool]error{false: tt.read, true: tt.write} {
			d, err := worktree.Pin(source, worktree.Rules{Roots: []string{root}, User: user, Write: write})
			if !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Errorf("%q, write %v: %v, want %v", tt.source, write, err, want)
			}
			if d == nil {
				continue
			}
			if d.Path != source || d.UID != alice || d.GID != tt.gid {
				t.Errorf("%q: pinned %s as %d:%d, want %d:%d", tt.source, d.Path, d.UID, d.GID, alice, tt.gid)
			}
			d.Close()
		}
		if errors.Is(tt.read, worktree.ErrNotAllowed) && filepath.Base(source) != "missing" && tt.source != "bob/alice" {
			d, err := worktree.Pin(source, worktree.Rules{Roots: []string{root}, Write: true})
			if err != nil {
				t.Errorf("control: toold itself: %v", err)
				continue
			}
			d.Close()
		}
	}
}

// What the user cannot see is forbidden all the same.
func TestPinAsUserPrivate(t *testing.T) {
	root := shared(t, [][3]int{{0, 0, 0o700}, {alice, alice, 0o755}}, "state", "state/mine")
	other := shared(t, [][3]int{{alice, alice, 0o755}}, "again")
	if err := unix.Mount(root+"/state/mine", other+"/again", "", unix.MS_BIND, ""); err != nil {
		t.Skip("no mounts here: ", err)
	}
	defer unix.Unmount(other+"/again", unix.MNT_DETACH)
	d, err := worktree.Pin(other+"/again", worktree.Rules{
		Roots: []string{other}, Private: []string{root + "/state/mine"}, User: &thread.User{UID: alice, GID: alice},
	})
	if !errors.Is(err, worktree.ErrForbidden) {
		t.Errorf("pinned %v, %v", d, err)
	}
}

// A root that the user cannot reach is none for him.
func TestPinAsUserRoot(t *testing.T) {
	root := shared(t, [][3]int{{0, 0, 0o700}, {alice, alice, 0o755}}, "shut", "shut/alice")
	rules := worktree.Rules{Roots: []string{root + "/shut/alice"}, User: &thread.User{UID: alice, GID: alice}}
	if d, err := worktree.Pin(root+"/shut/alice", rules); !errors.Is(err, worktree.ErrNotAllowed) {
		t.Errorf("pinned %v, %v", d, err)
	}
}

// While the user exchanges her directory with another's, or a directory on the way
// with a link, she gets hers or a refusal.
func TestPinAsUserRace(t *testing.T) {
	root := shared(t, [][3]int{
		{alice, alice, 0o755}, {alice, alice, 0o755}, {bob, bob, 0o700}, {alice, alice, 0o755}, {0, 0, 0o777},
	}, "way", "way/project", "bob", "other", "bob/project")
	if err := os.Symlink("../bob", root+"/other/link"); err != nil {
		t.Fatal(err)
	}
	var forbidden unix.Stat_t
	if err := unix.Stat(root+"/bob/project", &forbidden); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		with := []string{root + "/bob", root + "/other/link"}
		for i := 0; ; i++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			// There and back, so that both places are what they were.
			for range 2 {
				if err := unix.Renameat2(unix.AT_FDCWD, root+"/way", unix.AT_FDCWD, with[i%2], unix.RENAME_EXCHANGE); err != nil {
					done <- fmt.Errorf("exchange with %s: %w", with[i%2], err)
					return
				}
			}
		}
	}()
	rules := worktree.Rules{Roots: []string{root}, User: &thread.User{UID: alice, GID: alice}, Write: true}
	pinned, refused := 0, 0
	for end := time.Now().Add(time.Minute); (pinned < 50 || refused < 50) && time.Now().Before(end); {
		d, err := worktree.Pin(root+"/way/project", rules)
		if err != nil {
			refused++
			continue
		}
		pinned++
		var st unix.Stat_t
		if err := unix.Fstat(int(d.Fd()), &st); err != nil || st.Ino == forbidden.Ino && st.Dev == forbidden.Dev {
			t.Errorf("pinned another's directory (%v)", err)
		}
		d.Close()
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if pinned < 50 || refused < 50 {
		t.Errorf("%d pinned and %d refused: the race proves nothing", pinned, refused)
	}
}
