package sandboxtest

import (
	"strconv"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/testrig"
)

// What is too large for memory lies on disks, which are bounded in bytes and in files, come no
// sooner than they are needed, and are found again by the next daemon.
func testDisk(s *suite) {
	spec := s.spec()
	spec.Limits.Memory, spec.Limits.Tmp, spec.Limits.Disk = 128<<20, 20<<20, 20<<20
	d, ok := s.Driver.(sandbox.Disks)
	if !ok {
		s.refused(spec, sandbox.ErrUnsupported, "limits.disk")
		return
	}
	if err := d.Disks(); err != nil {
		testrig.Skipf(s, "loop", "no disks in files: %v", err)
	}
	b := s.create(spec)
	late, ok := b.Sandbox.(sandbox.Late)
	if ok && len(s.loops(spec)) == 0 {
		b.fails("echo x >~/x", "")
		b.want("ls -A ~", "")
	} else {
		s.holds("late", false, "there are disks: %q", s.loops(spec))
	}
	if !ok {
		s.Fatal("the driver has disks, and its sandboxes are not given them")
	}
	testrig.Must(s, late.Furnish())
	testrig.Must(s, late.Furnish())
	if n := len(s.loops(spec)); n != 1 {
		s.Errorf("%d disks for the home directory, /tmp and the worktree", n)
	}
	for dir, mode := range map[string]string{"/tmp": "1777 0", "/workspace": "755 1000", "/home/tool": "700 1000"} {
		b.want("stat -c '%a %u' "+dir+"; ls -A "+dir, mode)
		b.fails("head -c 64000000 /dev/zero >"+dir+"/big", "No space")
		b.out("rm " + dir + "/big")
		r := b.run("i=0; while [ $i -lt 8000 ]; do i=$((i+1)); : >" + dir + "/f$i || exit 1; done")
		s.holds("number of files", r.Code != 0 && strings.Contains(r.Output, "No space"), "%s takes 8000 files: %s", dir, r.Output)
		b.out("cd " + dir + " && ls | grep '^f' | xargs rm && echo kept >f")
	}
	b.want("printf '#!/bin/sh\necho runs' >~/x; chmod +x ~/x; ~/x", "runs")
	if u, err := b.Usage(s.ctx()); err != nil || u.DiskBytes < 4<<10 {
		s.holds("usage", false, "usage of the disks is %d, %v", u.DiskBytes, err)
	}
	again := b.adopt(s.Reopen())
	testrig.Must(s, again.Sandbox.(sandbox.Late).Furnish())
	again.want("cat /tmp/f ~/f f", "kept\nkept\nkept")
	if n := len(s.loops(spec)); n != 1 {
		s.Errorf("%d disks after a restart", n)
	}
	// Without limits.tmp all of them are bounded together.
	alone := s.spec()
	alone.Limits.Memory, alone.Limits.Tmp, alone.Limits.Disk = 128<<20, 0, 40<<20
	c := s.create(alone)
	testrig.Must(s, c.Sandbox.(sandbox.Late).Furnish())
	c.out("head -c 30000000 /dev/zero >/tmp/big")
	c.fails("head -c 30000000 /dev/zero >/workspace/big", "No space")
	small := s.spec()
	small.Limits.Disk = client.Size(1 << 20)
	if sb, err := s.Driver.Create(s.ctx(), small); err == nil || !strings.Contains(err.Error(), "at least") {
		s.Errorf("a disk of 1 MiB: %v", err)
		if err == nil {
			sb.Close()
		}
	}
}

// loops are the loop devices of a session.
func (s *suite) loops(spec sandbox.Spec) (all []string) {
	s.Helper()
	for _, trace := range s.traces(spec) {
		if strings.HasPrefix(trace, "a loop device") {
			all = append(all, strconv.Quote(trace))
		}
	}
	return all
}
