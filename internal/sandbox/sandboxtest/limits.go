package sandboxtest

import (
	"strings"

	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
)

// A call that takes too much memory dies of it; the agent and the next call do
// not.
func testMemoryLimit(s *suite) {
	spec := s.spec()
	spec.Limits.Memory, spec.Limits.Tmp = 64<<20, 4<<20
	b := s.create(spec)
	before := b.OOMKills()
	// Who reads takes a byte at a time, so that tail has them until it is killed: where
	// the agent keeps the limit it may be slow to see it.
	r := b.run("head -c 200000000 /dev/zero | tail -c 150000000 | { read x; echo over; }")
	if b.OOMKills() == before && r.Reason != run.ReasonMemory {
		s.Errorf("150 MB were held in 64 MiB, or OOMKills has not counted who was killed for it: %+v", r)
	}
	b.want("echo next", "next")
}

func testPIDsLimit(s *suite) {
	spec := s.spec()
	spec.Limits.PIDs = 20
	b := s.create(spec)
	before := b.PIDsHits()
	r := b.run("for i in $(seq 40); do sleep 1000 & done; false")
	if b.PIDsHits() == before && r.Reason != run.ReasonPIDs {
		s.Error("40 processes were started under a limit of 20, or PIDsHits has not counted them")
	}
	b.want("echo next", "next")
}

func testCPULimit(s *suite) {
	spec := s.spec()
	spec.Limits.CPUs = 1
	b := s.create(spec)
	b.want("nproc", "1")
	spec = s.spec()
	spec.Limits.CPUs = 0.2
	s.create(spec).want("nproc", "1")
}

// findMemory prints the limit of memory that a program finds which looks for its cgroup
// and those above it, as programs that size themselves do.
const findMemory = `
v1=$(sed -n 's/^[0-9]*:memory:/memory/p' /proc/self/cgroup)
[ -n "$v1" ] && cat /sys/fs/cgroup/${v1%/}/memory.limit_in_bytes && exit
at=$(sed -n 's/^0:://p' /proc/self/cgroup)
while :; do
	f=/sys/fs/cgroup$at/memory.max
	[ -e $f ] && ! grep -q max $f && cat $f && exit
	[ -n "$at" ] || exit 1
	at=${at%/*}
done`

// Programs find the session's limits where they look for those of a machine.
func testSizes(s *suite) {
	spec := s.spec()
	spec.Limits.Memory, spec.Limits.CPUs = 200<<20, 1
	b := s.create(spec)
	r := b.run(findMemory)
	s.holds("memory", strings.TrimSpace(r.Output) == "209715200", "a program finds %q", r.Output)
	r = b.run("getconf _NPROCESSORS_ONLN")
	s.holds("processors", strings.TrimSpace(r.Output) == "1", "a program finds %q", r.Output)
	b.fails("for f in $(find /sys/fs/cgroup -type f); do echo 0 >$f && exit 0; done; exit 1", "")
}

// The memory file systems are bounded in bytes and in files, and a session that
// has filled them goes on.
func testTmpLimit(s *suite) {
	spec := s.spec()
	spec.Limits.Tmp = 4 << 20
	b := s.create(spec)
	for _, dir := range []string{"/tmp", "/home/tool", "/workspace"} {
		b.fails("head -c 50000000 /dev/zero >"+dir+"/big", "No space")
		b.out("rm " + dir + "/big")
		r := b.run("i=0; while [ $i -lt 5000 ]; do i=$((i+1)); : >" + dir + "/f$i || exit 1; done")
		s.holds("number of files", r.Code != 0 && strings.Contains(r.Output, "No space"), "%s takes 5000 files: %s", dir, r.Output)
		b.out("cd " + dir + " && ls | grep '^f' | xargs rm && echo ok >f && rm f")
	}
	// What programs share is half of the memory.
	b.out("head -c 120000000 /dev/zero >/dev/shm/half && rm /dev/shm/half")
	b.fails("head -c 140000000 /dev/zero >/dev/shm/big", "No space")
	b.out("rm /dev/shm/big")
	r := b.run("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); : >/dev/shm/f$i || exit 1; done")
	s.holds("number of files", r.Code != 0 && strings.Contains(r.Output, "No space"), "/dev/shm takes 20000 files: %s", r.Output)
	b.out("cd /dev/shm && ls | grep '^f' | xargs rm")
}

// Limits of one process.
func testFileLimits(s *suite) {
	spec := s.spec()
	spec.Limits.OpenFiles, spec.Limits.FileSize = 100, 1<<20
	b := s.create(spec)
	b.want("ulimit -Hn", "100")
	b.run("head -c 3000000 /dev/zero >/tmp/big")
	b.want("stat -c %s /tmp/big", "1048576")
	b.want("ulimit -Hc", "0")
}

func testUsage(s *suite) {
	b := s.create(s.spec())
	b.out("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
	u, err := b.Usage(s.ctx())
	testrig.Must(s, err)
	if u.CPUMillis == 0 || u.MemoryBytes == 0 || u.PIDs == 0 {
		s.Errorf("usage is %+v, want time, memory and processes", u)
	}
}
