package session

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
)

// TestRealAttributes: what an apply writes of a session of a real driver has the times and attributes that
// it has there; a file that was there keeps its access control list.
func TestRealAttributes(t *testing.T) {
	a := newApplyRig(t)
	for _, name := range []string{"changed", "unset", "appended"} {
		a.write(name, "old\n")
		if err := unix.Setxattr(a.src+"/"+name, "user.was", []byte("before"), 0); err != nil {
			t.Skip("no extended attributes here: ", err)
		}
	}
	// User 4711 may read and write, as setfacl says it.
	list, err := hex.DecodeString("02000000" + "01000600ffffffff" + "0200060067120000" + "04000400ffffffff" + "10000600ffffffff" + "20000400ffffffff")
	a.must(err)
	const acl = "system.posix_acl_access"
	if err := unix.Setxattr(a.src+"/changed", acl, list, 0); err != nil {
		t.Skip("no access control lists here: ", err)
	}
	before := a.attribute("changed", acl)
	id := a.session("s")
	a.bash(id, `python3 - <<'END'
import os
def text(name, text, mode="w"):
    with open(name, mode) as f: f.write(text)
text("changed", "new\n")
os.setxattr("changed", "user.now", b"session")
text("appended", "more\n", "a")
text("unset", "new\n")
os.removexattr("unset", "user.was")
text("new", "new\n")
os.setxattr("new", "user.now", b"\xff\0x")
os.mkdir("d")
os.setxattr("d", "user.now", b"of a directory")
text("d/in", "in\n")
os.symlink("changed", "link")
for name, at in ("changed", 1e9), ("appended", 1.1e9), ("unset", 1.2e9), ("new", 1.3e9), ("d/in", 1.4e9): os.utime(name, (at, at))
os.utime("link", (1.5e9, 1.5e9), follow_symlinks=False)
END`)
	for _, over := range []bool{false, true} {
		if v := a.apply(id, client.ApplyRequest{DryRun: !over}); v.AttributesLeft != 0 || v.WrittenCount != 7 {
			t.Errorf("dry run %v: %+v", !over, v)
		}
	}
	for name, want := range map[string]struct {
		at       int64
		was, now string
	}{
		"changed": {1e9, "before", "session"}, "appended": {11e8, "before", ""}, "unset": {12e8, "", ""},
		"new": {13e8, "", "\xff\x00x"}, "d": {0, "", "of a directory"}, "d/in": {14e8, "", ""}, "link": {15e8, "", ""},
	} {
		info, err := os.Lstat(a.src + "/" + name)
		a.must(err)
		if info.ModTime().Unix() != want.at && want.at != 0 {
			t.Errorf("%s is of %v", name, info.ModTime())
		}
		if was, now := a.attribute(name, "user.was"), a.attribute(name, "user.now"); name != "link" && (was != want.was || now != want.now) {
			t.Errorf("%s has %q and %q; want %q and %q", name, was, now, want.was, want.now)
		}
	}
	if got := a.attribute("changed", acl); got != before || !strings.Contains(got, "\x67\x12") {
		t.Errorf("its access control list is %x, was %x", got, before)
	}
	if got := a.changed(id); got != nil {
		t.Errorf("after the apply %q are changed", got)
	}
	a.end(id)
}

// attribute is one of a file of the source, "" where it has none.
func (a *applyRig) attribute(name, attribute string) string {
	buf := make([]byte, 1<<10)
	n, err := unix.Lgetxattr(a.src+"/"+name, attribute, buf)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}
