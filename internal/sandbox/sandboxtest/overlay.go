package sandboxtest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
)

// testOverlay: tools write to a worktree of mode overlay as to any other, its source stays
// as it was, and what they wrote is in the upper layer alone. What it is compared with is
// there for the agent and for no tool.
func testOverlay(s *suite) {
	b := s.createOverlay(nil)
	b.want("cat kept changed", "kept\nchanged")
	b.want("ls -A", "changed\ndir\nkept")
	b.out("echo new >new && echo other >changed && rm kept && mv dir moved && chmod 600 changed")
	b.want("cat moved/below new changed", "below\nnew\nother")
	b.fails("ls "+sandbox.TreeDir, "denied")
	b.fails("ls "+sandbox.TreeDir+"/"+sandbox.TreeBase, "denied")
	b.unchanged()
	if names := s.listDir(filepath.Join(b.upper, "root")); names != "changed dir kept moved new" {
		s.Errorf("the upper layer has %s", names)
	}
}

// testRelay: the layers of a live sandbox are laid anew between its calls.
func testRelay(s *suite) {
	b := s.createOverlay(nil)
	b.out("echo one >one && mv dir moved")
	first := b.upper
	b.relay([]string{first})
	b.want("cat one moved/below", "one\nbelow")
	b.out("echo two >two && rm one && mv moved again")
	if names := s.listDir(filepath.Join(first, "root")); names != "dir moved one" {
		s.Errorf("the frozen layer has %s", names)
	}
	b.relay([]string{b.upper, first})
	b.want("ls -A", "again\nchanged\nkept\ntwo")
	b.relay([]string{first}) // back to where it was
	b.want("ls -A", "changed\nkept\nmoved\none")
	b.relay(nil)
	b.want("ls -A", "changed\ndir\nkept")
	b.unchanged()

	hold := b.start(b.request("exec 3<kept; echo held; sleep 60"), nil)
	testrig.Eventually(s, "the program holds a file", func() bool { return strings.Contains(hold.sink.text(), "held") })
	if err := b.tryRelay(nil); !errors.Is(err, sandbox.ErrBusy) {
		s.Errorf("a worktree in use was replaced: %v", err)
	}
	b.want("cat kept", "kept")
	testrig.Must(s, b.conn.Abort(hold.id, run.ReasonAborted))
	<-hold.done
	b.relay(nil)
	b.want("cat kept", "kept")
}

// testRelayMounts: what is mounted in a worktree is there when that is laid anew; and where it would
// have no place, all that the session wrote is there as before.
func testRelayMounts(s *suite) {
	deep := s.dir(owner)
	s.write(deep.Name()+"/mounted", "mounted\n", owner, 0o644)
	b := s.createOverlay(nil, sandbox.Mount{Source: deep, Target: sandbox.Workspace + "/dir", UID: owner, GID: owner})
	b.out("echo one >one")
	first := b.upper
	b.relay([]string{first})
	b.want("cat one dir/mounted", "one\nmounted")
	b.out("echo two >two")
	place := b.source + "/dir"
	testrig.Must(s, os.Rename(place, b.source+"/away"))
	for range 2 {
		if err := b.tryRelay(nil); !errors.Is(err, sandbox.ErrMountTarget) {
			s.Errorf("a worktree without a place for what is mounted in it: %v", err)
		}
		b.want("cat one two dir/mounted && echo three >>two", "one\ntwo\nmounted")
		b.out("echo two >two")
		testrig.Must(s, os.WriteFile(place, nil, 0o644)) // none for a directory either
	}
	testrig.Must(s, errors.Join(os.Remove(place), os.Rename(b.source+"/away", place)))
	b.relay([]string{b.upper, first})
	b.want("cat two dir/mounted && ls", "two\nmounted\nchanged\ndir\nkept\none\ntwo")
	b.unchanged()
}

// testOverlayForeign: layers of another session are shown as this one's tool user's.
func testOverlayForeign(s *suite) {
	first := s.createOverlay(nil)
	first.out("echo one >one && mv dir moved && rm kept && mkdir -m 700 private && echo x >private/x")
	second := s.createOverlay(first)
	second.want("ls -A", "changed\nmoved\none\nprivate")
	second.want("stat -c %u:%g one private/x moved/below", "1000:1000\n1000:1000\n1000:1000")
	second.out("echo two >>one && rm -r private && mv moved dir")
	second.want("cat one dir/below", "one\ntwo\nbelow")
	first.want("cat one private/x moved/below", "one\nx\nbelow")
	second.unchanged()
}

// overlaid is a box with a worktree of mode overlay.
type overlaid struct {
	*box
	source string
	upper  string // the directory of its upper layer
}

// createOverlay makes one, over the source and the layer of another where that is given.
func (s *suite) createOverlay(over *overlaid, mounts ...sandbox.Mount) *overlaid {
	s.Helper()
	o := &overlaid{}
	spec := s.spec()
	var source *os.File
	overlay := &sandbox.Overlay{}
	if over == nil {
		source = s.dir(owner)
		o.source = source.Name()
		s.write(o.source+"/kept", "kept\n", owner, 0o644)
		s.write(o.source+"/changed", "changed\n", owner, 0o644)
		testrig.Must(s, errors.Join(os.Mkdir(o.source+"/dir", 0o755), os.Chown(o.source+"/dir", owner, owner)))
		s.write(o.source+"/dir/below", "below\n", owner, 0o644)
	} else {
		o.source = over.source
		source = s.open(o.source)
		overlay.Lower = []*os.File{s.open(over.upper)}
	}
	overlay.Upper = s.dir(0)
	o.upper = overlay.Upper.Name()
	spec.Mounts = append(spec.Mounts, mounts...)
	spec.Worktree = sandbox.Worktree{
		Source: source, Mode: client.WorktreeOverlay, Target: sandbox.Workspace, UID: owner, GID: owner, Overlay: overlay,
	}
	o.box = s.create(spec)
	return o
}

// relay lays the worktree anew over layers, with another upper one.
func (o *overlaid) relay(lower []string) {
	o.s.Helper()
	testrig.Must(o.s, o.tryRelay(lower))
}

func (o *overlaid) tryRelay(lower []string) error {
	o.s.Helper()
	claim := o.spec.Claim
	overlay := &sandbox.Overlay{Upper: o.s.dir(0)}
	for _, l := range lower {
		overlay.Lower = append(overlay.Lower, o.s.open(l))
	}
	claim.Worktree.Overlay = overlay
	err := o.Sandbox.(sandbox.Relaying).Relay(o.s.ctx(), &claim)
	if err == nil {
		o.upper = overlay.Upper.Name()
	}
	return err
}

// unchanged looks at the source on the host.
func (o *overlaid) unchanged() {
	o.s.Helper()
	if names := o.s.listDir(o.source); names != "changed dir kept" {
		o.s.Errorf("the source has %s", names)
	}
	if text, err := os.ReadFile(o.source + "/changed"); err != nil || string(text) != "changed\n" {
		o.s.Errorf("the source's file has %q, %v", text, err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(o.source+"/changed", &st); err != nil || st.Mode&0o777 != 0o644 {
		o.s.Errorf("the source's file has mode %o, %v", st.Mode&0o777, err)
	}
}

func (s *suite) listDir(dir string) string {
	s.Helper()
	entries, err := os.ReadDir(dir)
	testrig.Must(s, err)
	var names []string
	for _, e := range entries { // in their order
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}
