package attack

// A difference is a check of a row that fails on a tier, and is meant to: it says
// what is so there instead, and why. A difference that no check shows any more
// fails its row, like a check that fails without one.
type difference struct {
	tier string
	test string // the row's function
	// checks are the names that the row gives to holds; none when the row as a
	// whole means nothing on the tier.
	checks []string
	what   string // a clause, as docs/security.md shows it
	why    string // a sentence
}

// differences are all there are, in the order of docs/security.md's notes.
var differences = []difference{
	{"runsc", "TestK1Status", []string{"uid_map", "gid_map"}, "the map that a tool sees is that of a whole machine",
		"It is of gVisor's own ids; on the host its process has the session's range."},
	{"runsc", "TestK2NamespaceQuota", nil, "there is no user namespace of Linux's with the session's processes in it",
		"They are gVisor's, which the row TestK2Namespaces asks."},
	{"runsc", "TestK5Sockets", []string{"int80", "x32"}, "a system call by the entry of another architecture never returns, and its process spins until it is killed",
		"gVisor's platform knows the native entry alone; the call's timeout and the limit of CPU time bound it."},
	{"runsc", "TestK6Devices", []string{"/dev/char", "/dev/fuse", "/dev/net", "open-fuse", "open-tun"}, "/dev has fuse and net/tun, which can be opened",
		"They are of gVisor's own kernel; behind them is nothing of the host's."},
	{"runsc", "TestK8Procfs", []string{"read-sys.class"}, "/sys/class has content",
		"It is made up by gVisor and says nothing of the host."},
	{"runsc", "TestK12Descriptors", []string{"agent"}, "the process on the host holds the session's files",
		"It is gVisor's kernel and not the agent, whose descriptors only that kernel knows."},
	{"runsc", "TestK13ProgramsStay", []string{"open-exe-own-ok"}, "a program of the worktree can be opened for writing while it runs",
		"gVisor has no ETXTBSY; the programs of host and agent are read-only all the same."},
	{"runsc", "TestK16Cgroups", []string{"cgroup-mounts"}, "a cgroup file system is mounted",
		"It is gVisor's own, by which the agent keeps the calls apart, in a directory that only the agent can pass."},
	{"runsc", "TestK20Priority", []string{"nice", "oom_score_adj"}, "a tool can raise its priority and lower its oom_score_adj",
		"Both are numbers of gVisor's without effect on the host."},
}
