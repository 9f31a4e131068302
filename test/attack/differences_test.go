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
	{
		"runsc", "TestK1Status",
		[]string{"uid_map", "gid_map"},
		"the map that a tool sees is that of a whole machine",
		"It is of gVisor's own ids; on the host its process has the session's range.",
	},
	{
		"runsc", "TestK2NamespaceQuota", nil, "there is no user namespace of Linux's with the session's processes in it",
		"They are gVisor's, which the row TestK2Namespaces asks.",
	},
	{
		"runsc", "TestK5Sockets",
		[]string{"int80", "x32"},
		"a system call by the entry of another architecture never returns, and its process spins until it is killed",
		"gVisor's platform knows the native entry alone; the call's timeout and the limit of CPU time bound it.",
	},
	{
		"runsc", "TestK6Devices",
		[]string{"/dev/char", "/dev/fuse", "/dev/net", "open-fuse", "open-tun"},
		"/dev has fuse and net/tun, which can be opened",
		"They are of gVisor's own kernel; behind them is nothing of the host's.",
	},
	{
		"runsc", "TestK8Procfs",
		[]string{"read-sys.class"},
		"/sys/class has content",
		"It is made up by gVisor and says nothing of the host.",
	},
	{
		"runsc", "TestK12Descriptors",
		[]string{"agent"},
		"the process on the host holds the session's files",
		"It is gVisor's kernel and not the agent, whose descriptors only that kernel knows.",
	},
	{
		"runsc", "TestK13ProgramsStay",
		[]string{"open-exe-own-ok"},
		"a program of the worktree can be opened for writing while it runs",
		"gVisor has no ETXTBSY; the programs of host and agent are read-only all the same.",
	},
	{
		"runsc", "TestK16Cgroups",
		[]string{"cgroup-mounts"},
		"a cgroup file system is mounted",
		"It is gVisor's own, by which the agent keeps the calls apart, in a directory that only the agent can pass.",
	},
	{
		"runsc", "TestK19Executables",
		[]string{"control"},
		"the control sees no file of the host's in a session without an image",
		"What a gVisor sandbox shows has no place in the host's file systems; that its image shares nothing with the host is seen in the image.",
	},
	{
		"docker", "TestK19Executables", nil, "the Engine keeps its images where nothing of the host's is run",
		"The daemon keeps none for it, and does not look into the Engine's.",
	},
	{
		"docker", "TestK10ImageLinks", nil, "the Engine unpacks images and makes the mounts",
		"What it makes of such an image is the Engine's own; the daemon has no image of this kind for it.",
	},
	{
		"docker", "TestE5ImageDisk", nil, "there is no writable layer",
		"The root file system is read-only, so that nothing has to be bounded.",
	},
	{
		"runsc", "TestK20Priority",
		[]string{"nice", "oom_score_adj"},
		"a tool can raise its priority and lower its oom_score_adj",
		"Both are numbers of gVisor's without effect on the host.",
	},
	{
		"runsc", "TestK21PerUser",
		[]string{"control"},
		"a tool can make inotify instances as long as it has descriptors",
		"They are gVisor's, which counts none by user, and cost the session's own memory.",
	},
	{
		"runsc", "TestE5Inodes",
		[]string{"/tmp", "next"},
		"the number of files in /tmp is not bounded by itself, and a session that makes millions of them is lost",
		"runsc does not pass the bound on: its kernel's memory is the bound, and the wall around that is the session's.",
	},
	{
		"runsc", "TestF14SourcesOfOthers",
		[]string{"shared"},
		"tools do not have the rights of a group",
		"The host sees gVisor's process, which is in no group but its own.",
	},
	{
		"docker", "TestF14SourcesOfOthers",
		[]string{"shared"},
		"tools can change nothing that belongs to another user or group, where its modes allow it, too",
		"See TestK1Status: ids of the host are not shown where a session could have them, and Linux changes nothing whose owner is not shown.",
	},
	{
		"docker", "TestK1Status",
		[]string{"uid_map", "gid_map"},
		"the ids of a session are those of the host",
		"An Engine has one user namespace for all of its containers, or none; tools have uid 1000 of it.",
	},
	{
		"docker", "TestK2NamespaceQuota", nil, "a session has no user namespace of its own",
		"See TestK1Status; making one is refused by the seccomp filter alone.",
	},
	{
		"docker", "TestK27Terminals",
		[]string{"taken"},
		"one session can take all pseudo-terminals of the host",
		"An Engine sets no bound on those of a container.",
	},
	{
		"docker", "TestK9HostileRootfs", nil, "a root filesystem is an image of the Engine's",
		"The Engine unpacks it, masks what it masks, and answers for that.",
	},
	{
		"docker", "TestK10RootfsLinks", nil, "a root filesystem is an image of the Engine's",
		"The Engine unpacks it and makes its mount points, and answers for that.",
	},
	{
		"docker", "TestD14RangesRest", nil, "a session has no range of uids",
		"See TestK1Status.",
	},
	{
		"docker", "TestK21PerUser",
		[]string{"neighbour"},
		"one session can use up what the kernel counts by user, such as inotify instances, for all of them",
		"See TestK1Status: their tools have one uid on the host.",
	},
}
