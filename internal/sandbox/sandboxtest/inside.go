package sandboxtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/testrig"
)

// owner is a uid of the host that has files there.
const owner = 12345

func testInside(s *suite) {
	b := s.create(s.spec())
	b.want("test -e "+sandbox.MarkerFile+" && echo marked", "marked")
	b.want("cd "+sandbox.Home+" && echo hi >f && cat f", "hi")
	b.want("cd /tmp && echo hi >f && cat f", "hi")
	b.want("cd "+sandbox.Workspace+" && echo hi >f && cat f", "hi")
	b.want("cat "+sandbox.AgentPath+" >/dev/null && echo readable", "readable")
	for _, path := range []string{"/", "/etc", "/usr", "/run/toold", sandbox.OutputDir, "/home"} {
		if r := b.run("echo >" + filepath.Join(path, "x")); r.Code == 0 {
			s.Errorf("%s is writable", path)
		}
	}
	if b.IDMap() != "" {
		s.Errorf("IDMap of an empty worktree is %q", b.IDMap())
	}
}

func testIdentity(s *suite) {
	b := s.create(s.spec())
	b.want("id -u; id -g; id -G", fmt.Sprintf("%d\n%d\n%d", sandbox.ToolUID, sandbox.ToolGID, sandbox.ToolGID))
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
		b.want("sed -n 's/^"+set+":\\t//p' /proc/self/status", "0000000000000000")
	}
	b.want("sed -n 's/^NoNewPrivs:\\t//p' /proc/self/status", "1")
	b.want("sed -n 's/^Seccomp:\\t//p' /proc/self/status", "2")
	got := strings.Fields(b.out("cat /proc/self/uid_map"))
	s.holds("uid map", len(got) >= 3 && got[0] != got[1], "it is %v: ids of the sandbox are ids of the host", got)
	if got := b.out("cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '"); got != "lo" {
		s.Errorf("network interfaces are %q, want lo alone", got)
	}
	b.fails("kill -9 1", "")
	b.want("echo alive", "alive")
}

func testWorktree(s *suite) {
	src := s.dir(owner)
	s.write(src.Name()+"/mine", "content", owner, 0o600)
	spec := s.spec()
	spec.Worktree = sandbox.Worktree{Source: src, Mode: client.WorktreeBind, Target: "/home/someone/project", UID: owner, GID: owner}
	b := s.create(spec)
	b.want("cd /home/someone/project && stat -c %u:%g:%a mine && cat mine", fmt.Sprintf("%d:%d:600\ncontent", sandbox.ToolUID, sandbox.ToolGID))
	b.want("cd /home/someone/project && echo new >made && mkdir dir && stat -c %u:%g made", fmt.Sprintf("%d:%d", sandbox.ToolUID, sandbox.ToolGID))
	for _, name := range []string{"made", "dir"} {
		fi, err := os.Lstat(filepath.Join(src.Name(), name))
		testrig.Must(s, err)
		if st := fi.Sys().(*syscall.Stat_t); st.Uid != owner || st.Gid != owner {
			s.Errorf("%s belongs to %d:%d on the host, want %d", name, st.Uid, st.Gid, owner)
		}
	}
	if b.IDMap() == "" {
		s.Error("IDMap says nothing")
	}
	if len(b.Notes()) == 0 {
		s.Error("Notes do not say that a bind-mounted worktree has no bound")
	}
	// Another session on the same directory sees the same.
	spec2 := s.spec()
	spec2.Worktree = spec.Worktree
	s.create(spec2).want("cat /home/someone/project/made", "new")
}

func testWorktreeReadOnly(s *suite) {
	src := s.dir(owner)
	s.write(src.Name()+"/mine", "content", owner, 0o600)
	spec := s.spec()
	spec.Worktree = sandbox.Worktree{Source: src, Mode: client.WorktreeRO, Target: sandbox.Workspace, UID: owner, GID: owner}
	b := s.create(spec)
	b.want("cat /workspace/mine", "content")
	b.fails("echo >/workspace/mine", "Read-only")
	b.fails("rm /workspace/mine", "Read-only")
}

// Files of others stay others': neither root's nor another user's become the
// tools'. Setuid files and devices mean nothing.
func testForeignFiles(s *suite) {
	src := s.dir(owner)
	testrig.Must(s, os.Chmod(src.Name(), 0o777))
	s.write(src.Name()+"/root", "r", 0, 0o600)
	s.write(src.Name()+"/other", "o", owner+1, 0o644)
	s.write(src.Name()+"/setuid", "#!/bin/sh\nid -u\n", 0, 0o755|os.ModeSetuid)
	testrig.Must(s, syscall.Mknod(src.Name()+"/null", syscall.S_IFCHR|0o666, 1<<8|3))
	spec := s.spec()
	spec.Worktree = sandbox.Worktree{Source: src, Mode: client.WorktreeBind, Target: sandbox.Workspace, UID: owner, GID: owner}
	b := s.create(spec)
	b.want("stat -c %u:%g /workspace/root /workspace/other", "65534:65534\n65534:65534")
	b.fails("cat /workspace/root", "denied")
	b.want("cat /workspace/other", "o")
	b.fails("echo >/workspace/other", "denied")
	b.fails("echo >/workspace/null", "denied")
	b.want("/workspace/setuid", fmt.Sprint(sandbox.ToolUID))
	// Nothing that the host would run with the owner's ids can be made.
	b.fails("cp /bin/true /workspace/x && chmod u+s /workspace/x", "")
	b.fails("cp /bin/true /workspace/x && chmod g+s /workspace/x", "")
	b.want("chmod 751 /workspace/x && stat -c %a /workspace/x", "751")
}

// Outputs are to be read and nothing else. They are not the tool user's own: an
// owner could take leases on them, and with these hold up the daemon.
func testOutput(s *suite) {
	out := s.dir(0)
	testrig.Must(s, os.Chmod(out.Name(), 0o755))
	s.write(out.Name()+"/call", "whole output", 0, 0o644)
	spec := s.spec()
	spec.OutputDir = out.Name()
	b := s.create(spec)
	b.want("cat "+sandbox.OutputDir+"/call", "whole output")
	b.fails("echo >"+sandbox.OutputDir+"/call", "") // it is read-only, and another's too
	s.write(out.Name()+"/later", "too", 0, 0o644)
	b.want("cat "+sandbox.OutputDir+"/later", "too")
	s.write(out.Name()+"/program", "#!/bin/sh\nid -u\n", 0, 0o755|os.ModeSetuid)
	b.fails(sandbox.OutputDir+"/program", "denied")
	b.want("stat -c %u:%g "+sandbox.OutputDir+" "+sandbox.OutputDir+"/call", "65534:65534\n65534:65534")
	b.fails("chmod 600 "+sandbox.OutputDir+"/call", "")
	options := b.out("grep ' " + sandbox.OutputDir + " ' /proc/self/mountinfo | cut -d' ' -f6")
	for _, want := range []string{"ro", "nosuid", "nodev", "noexec"} {
		s.holds(want, slices.Contains(strings.Split(options, ","), want), "outputs are mounted %s", options)
	}
}

// The agent's journal is for no tool, where there is one.
func testJournal(s *suite) {
	dir := s.dir(0)
	spec := s.spec()
	spec.JournalDir = dir.Name()
	b := s.create(spec)
	b.fails("ls "+sandbox.JournalDir, "")
	b.fails("echo x >"+sandbox.JournalDir+"/x", "")
	b.fails("rmdir "+sandbox.JournalDir, "")
	if names := s.listDir(dir.Name()); names != "" {
		s.Errorf("tools have made %s", names)
	}
}

func testMounts(s *suite) {
	src, cache := s.dir(owner), s.dir(owner)
	s.write(cache.Name()+"/file", "cached", owner, 0o600)
	s.write(cache.Name()+"/program", "#!/bin/sh\necho ran\n", owner, 0o700)
	testrig.Must(s, os.Mkdir(src.Name()+"/modules", 0o755))
	spec := s.spec()
	spec.Worktree = sandbox.Worktree{Source: src, Mode: client.WorktreeBind, Target: sandbox.Workspace, UID: owner, GID: owner}
	spec.Mounts = []sandbox.Mount{
		{Source: cache, Target: "/cache/deep", UID: owner, GID: owner},
		{Source: cache, Target: sandbox.Workspace + "/modules", UID: owner, GID: owner},
		{Source: cache, Target: "/data", UID: owner, GID: owner, NoExec: true},
	}
	b := s.create(spec)
	for _, target := range []string{"/cache/deep", sandbox.Workspace + "/modules"} {
		b.want("cat "+target+"/file", "cached")
		b.fails("echo >"+target+"/file", "Read-only")
		b.fails("echo >"+target+"/new", "Read-only")
		b.want(target+"/program", "ran")
	}
	b.want("cat /data/file", "cached")
	b.fails("/data/program", "Permission denied")
	entries, err := os.ReadDir(src.Name())
	if err != nil || len(entries) != 1 {
		s.Errorf("worktree has %v, want modules alone (%v)", entries, err)
	}
}
