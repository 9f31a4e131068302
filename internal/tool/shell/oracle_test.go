package shell

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/testrig"
)

// The oracle is real bash, and real dash. It runs any text, so it only runs where a text can do
// nothing: as uid 65534 without capabilities in namespaces of its own (no
// network, no process but its own), on an empty file system with bash, a few
// wrappers and stubs, with one file that may be read and written. A stub writes down how it was called and does nothing.

// oracleEnv makes the test binary be the oracle's first process. Its value is how
// long a text may take.
const oracleEnv = "TOOLD_SHELL_ORACLE"

func TestMain(m *testing.M) {
	if exe, _ := os.Readlink("/proc/self/exe"); filepath.Dir(exe) == argvDir {
		fmt.Fprintln(os.Stderr, argvMain(filepath.Base(exe)))
		os.Exit(1)
	}
	if os.Getenv(oracleEnv) != "" {
		if err := oracleMain(); err != nil {
			fmt.Fprintln(os.Stderr, "oracle:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	stopOracles()
	os.Exit(code)
}

// execution is what a shell did with a text.
type execution struct {
	programs [][]string // how each stub was called
	trace    []string   // first words of the commands that the shell itself traced
	files    []string   // that it wrote, absolute
	opened   []string   // of the files that were there, absolute
	timeout  bool
}

type oracle struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// oracles are those that wait for a text. One is started where none is left.
var oracles struct {
	mu   sync.Mutex
	idle []*oracle // guarded by mu
}

func stopOracles() {
	for _, o := range oracles.idle {
		_ = o.in.Close()
		_ = o.cmd.Wait()
	}
}

// takeOracle is an oracle for one text at a time, for giveOracle after it.
func takeOracle() (*oracle, error) {
	oracles.mu.Lock()
	defer oracles.mu.Unlock()
	if n := len(oracles.idle); n > 0 {
		o := oracles.idle[n-1]
		oracles.idle = oracles.idle[:n-1]
		return o, nil
	}
	return startOracle()
}

func giveOracle(o *oracle) {
	oracles.mu.Lock()
	defer oracles.mu.Unlock()
	oracles.idle = append(oracles.idle, o)
}

// needOracle skips where namespaces cannot be made, unless they are required.
func needOracle(t testing.TB) {
	t.Helper()
	o, err := takeOracle()
	if err != nil {
		testrig.Skipf(t, "oci", "no oracle: %v", err)
	}
	giveOracle(o)
}

// hasOracle reports whether there is one.
func hasOracle() bool {
	o, err := takeOracle()
	if err != nil {
		return false
	}
	giveOracle(o)
	return true
}

func startOracle() (*oracle, error) {
	if os.Getuid() != 0 {
		return nil, errors.New("needs root for namespaces of its own")
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{oracleEnv + "=30s"}
	if f := flag.Lookup("test.fuzzworker"); f != nil && f.Value.String() == "true" {
		cmd.Env = []string{oracleEnv + "=2s"} // a worker gives up after ten seconds, also on a busy machine
	}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("namespaces: %w", err)
	}
	o := &oracle{cmd: cmd, in: in, out: bufio.NewReader(out)}
	if hello, err := readBlock(o.out); err != nil || string(hello) != "ready" {
		_ = cmd.Wait()
		return nil, fmt.Errorf("the oracle did not start: %w", err)
	}
	return o, nil
}

// surroundings are what a session may have chosen for its shell.
type surroundings struct {
	home, oldpwd string
	cdpath       string
	// pwd is another name of the directory that the shell starts in.
	pwd string
	// workdir is where the shell starts, as a call says it.
	workdir string
	// argv: programs see the name by which they are run.
	argv bool
	// own: home is the session's own choice, of which the scan is told that there is one.
	own bool
	// socket: bash has a socket as its input, as of a connection, and is not the first shell there. In a session its
	// input is none; a text may open one.
	socket bool
}

// options are what a scan is told of them.
func (s surroundings) options(shell string) Options {
	o := Options{Home: s.home, Workdir: s.workdir, Astray: s.cdpath != "" || s.pwd != "", Shell: []string{shell}}
	if s.own {
		o.Home = ""
	}
	return o
}

// usual are those that are chosen by nobody.
var usual = surroundings{home: "/w"}

// execute runs text in bash or dash.
func execute(t testing.TB, shell, text string) execution {
	t.Helper()
	return executeIn(t, shell, text, usual)
}

func executeIn(t testing.TB, shell, text string, around surroundings) execution {
	t.Helper()
	o, err := takeOracle()
	if err != nil {
		t.Fatalf("oracle: %v", err)
	}
	defer giveOracle(o)
	said := []string{shell, around.home, around.oldpwd, around.cdpath, around.pwd, around.workdir, strconv.FormatBool(around.socket), strconv.FormatBool(around.argv)}
	for _, block := range []string{strings.Join(said, "\x00"), text} {
		if err := writeBlock(o.in, []byte(block)); err != nil {
			t.Fatalf("oracle: %v", err)
		}
	}
	var blocks [4][]byte
	for i := range blocks {
		var err error
		if blocks[i], err = readBlock(o.out); err != nil {
			t.Fatalf("oracle, on %q: %v", text, err)
		}
	}
	status, files, _ := strings.Cut(string(blocks[2]), "\x00")
	x := execution{timeout: status == "timeout"}
	if files != "" {
		x.files = strings.Split(files, "\x00")
	}
	if len(blocks[3]) > 0 {
		x.opened = strings.Split(string(blocks[3]), "\x00")
	}
	for record := range strings.SplitSeq(string(blocks[0]), recordEnd) {
		if record = strings.TrimPrefix(record, "\x00"); record != "" {
			argv := strings.Split(record, "\x00")
			argv[0] = strings.TrimPrefix(argv[0], "/stub/")
			x.programs = append(x.programs, argv)
		}
	}
	if shell == "bash" || !strings.ContainsAny(text, "&|") {
		x.trace = traced(string(blocks[1])) // those of dash get mixed when two run at once
	}
	return x
}

var tracedWord = regexp.MustCompile(`(?m)^\x02+ (\S+)`)

// traced are the first words of a trace that are commands, each once: a loop that does
// not end has tens of thousands.
func traced(trace string) []string {
	var names []string
	seen := make(map[string]bool)
	trace = strings.ReplaceAll(trace, " builtin printf '%s\\0' ", " = ") // the handler's own
	for _, m := range tracedWord.FindAllStringSubmatch(trace, -1) {
		switch name := m[1]; {
		case name == "for", name == "case", name == "[[", name == "((", name == "select", strings.ContainsAny(name, "='\"$"), seen[name]:
		default:
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

func writeBlock(w io.Writer, b []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

func readBlock(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > 16<<20 {
		return nil, fmt.Errorf("block of %d bytes", n)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}

// realPrograms are in the oracle as they are; all others are stubs.
var realPrograms = []string{
	"/bin/bash", "/bin/dash", "/usr/bin/env", "/usr/bin/timeout", "/usr/bin/nice", "/usr/bin/nohup", "/usr/bin/setsid",
	"/usr/bin/stdbuf", "/usr/bin/xargs", "/usr/bin/find", "/usr/bin/printf", "/usr/bin/test", realPerl,
}

// realPerl is there by its path where the machine has it, and a stub by its name.
const realPerl = "/usr/bin/perl"

var stubNames = []string{
	"touch", "git", "ls", "cat", "rm", "sed", "awk", "tar", "perl", "python3", "sort", "cp", "mv", "ln", "dd", "less", "make", "man", "tee",
	"grep", "head", "tail", "curl", "npm", "go", "id", "mkdir", "sudo", "a", "b", "c", "x",
}

// oracleMain builds the file system and serves texts.
func oracleMain() error {
	if os.Getpid() != 1 {
		return errors.New("it only runs in a process namespace of its own")
	}
	var err error
	if patience, err = time.ParseDuration(os.Getenv(oracleEnv)); err != nil {
		return err
	}
	unix.Umask(0o022) // whatever the test's is
	const root = "/mnt"
	if err := buildRoot(root); err != nil {
		return err
	}
	if err := unix.Chroot(root); err != nil {
		return err
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if _, err := os.Stat("/etc"); err == nil {
		return errors.New("it is not on its own file system")
	}
	if err := listen(); err != nil {
		return err
	}
	if err := limited(); err != nil {
		return err
	}
	if err := writeBlock(os.Stdout, []byte("ready")); err != nil {
		return err
	}
	for {
		shell, err := readBlock(os.Stdin)
		if err != nil {
			return nil // the test has ended
		}
		text, err := readBlock(os.Stdin)
		if err != nil {
			return err
		}
		said := strings.Split(string(shell), "\x00")
		if err := serve(said[0], string(text), surroundings{
			home: said[1], oldpwd: said[2], cdpath: said[3], pwd: said[4], workdir: said[5], socket: said[6] == "true", argv: said[7] == "true",
		}); err != nil {
			return err
		}
	}
}

// listen takes connections at port 7 of this network's own loopback, and keeps none.
func listen() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:7")
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	return nil
}

func buildRoot(root string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, "size=64m,mode=755"); err != nil {
		return fmt.Errorf("tmpfs: %w", err)
	}
	for _, dir := range []string{"/stub", "/w", "/l", "/proc", "/dev", "/tmp"} {
		if err := os.Mkdir(root+dir, 0o755); err != nil {
			return err
		}
	}
	for _, p := range realPrograms {
		if _, err := os.Stat(p); p == realPerl && err != nil {
			continue
		}
		if err := install(root, p); err != nil {
			return err
		}
	}
	if err := os.Symlink("dash", root+"/bin/sh"); err != nil {
		return err
	}
	stub := "#!/bin/dash\nprintf '%s\\0' \"$0\" \"$@\" '\x01' >>/l/p.$$\n"
	for _, name := range stubNames {
		if err := os.WriteFile(root+"/stub/"+name, []byte(stub), 0o755); err != nil {
			return err
		}
	}
	for name, text := range kindStubs() {
		if err := os.MkdirAll(filepath.Dir(root+name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(root+name, []byte(text), 0o755); err != nil {
			return err
		}
	}
	if err := installSelf(root); err != nil {
		return err
	}
	if err := os.WriteFile(root+"/dev/null", nil, 0o666); err != nil {
		return err
	}
	for _, m := range []struct {
		from, to, kind string
		flags          uintptr
		data           string
	}{
		{"/dev/null", "/dev/null", "", unix.MS_BIND, ""},
		{"proc", "/proc", "proc", unix.MS_NODEV | unix.MS_NOSUID | unix.MS_NOEXEC, ""},
		{"tmpfs", "/w", "tmpfs", unix.MS_NODEV | unix.MS_NOSUID, "size=8m,nr_inodes=2k,mode=777"},
		{"tmpfs", "/l", "tmpfs", unix.MS_NODEV | unix.MS_NOSUID | unix.MS_NOEXEC, "size=8m,mode=777"},
	} {
		if err := unix.Mount(m.from, root+m.to, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.to, err)
		}
	}
	for name, to := range map[string]string{"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"} {
		if err := os.Symlink("/proc/self/fd"+to, root+"/dev/"+name); err != nil {
			return err
		}
	}
	return unix.Mount("", root, "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NODEV|unix.MS_NOSUID, "")
}

// kindStubs are the stubs, by path, of programs that have options before the words that say what they do: each reads its
// options as the program itself does, by its manual, and writes down, behind an "@" with the program's name, what it would do.
func kindStubs() map[string]string {
	all := make(map[string]string)
	for name, options := range map[string]struct{ values, alone, end string }{
		"git": {
			"-C|-c|--git-dir|--work-tree|--namespace|--super-prefix|--config-env|--attr-source|--shallow-file",
			"-p|--paginate|-P|--no-pager|--bare|--no-replace-objects|--literal-pathspecs|--no-literal-pathspecs|--glob-pathspecs|--noglob-pathspecs|--icase-pathspecs|--no-optional-locks|" +
				"--exec-path=*|--git-dir=*|--work-tree=*|--namespace=*|--super-prefix=*|--config-env=*|--attr-source=*",
			"--help|-h|--version|-v|--exec-path|--html-path|--man-path|--info-path|--list-cmds=*",
		},
		"docker": {"--config|-c|--context|-H|--host|-l|--log-level|--tlscacert|--tlscert|--tlskey", "-D|--debug|--tls|--tlsverify|--*=*|-[cHl]?*", "-h|--help|-v|--version"},
		"kubectl": {
			"--as|--cache-dir|--cluster|--context|--kubeconfig|-n|--namespace|--request-timeout|-s|--server|--token|--user|-v", "--insecure-skip-tls-verify|--match-server-version|--*=*|-[nsv]?*", "-h|--help",
		},
		"npm": {"--prefix|-C|--registry|--userconfig|--globalconfig|--cache|--loglevel|--tag|--otp|-w|--workspace", "-s|--silent|-g|--global|--no-color|--json|--*=*", "-h|--help|-v|--version"},
	} {
		all["/stub/"+name] = "#!/bin/dash\nprintf '%s\\0' \"$0\" \"$@\" '\x01' >>/l/p.$$\nwhile [ $# -gt 0 ]; do case $1 in\n" +
			options.end + ") exit 0;;\n" + options.values + ") [ $# -gt 1 ] || exit 129; shift 2;;\n" + options.alone + ") shift;;\n-*) exit 129;;\n" +
			"*) printf '%s\\0' @" + name + " \"$1\" '\x01' >>/l/p.$$; exit;;\nesac; done\n"
	}
	for _, dir := range gitCores {
		for _, name := range gitPrograms {
			all[dir+"/git-"+name] = "#!/bin/dash\nprintf '%s\\0' @git " + name + " \"$@\" '\x01' >>/l/p.$$\n"
		}
	}
	return all
}

// gitCores are directories of git's own programs.
var gitCores = []string{"/usr/lib/git-core", "/opt/git/libexec/git-core"}

var gitPrograms = []string{"push", "commit", "reset", "stash", "worktree", "remote-https"}

// argvDir has programs that see the name by which they are run, as no script does. Each writes it down, behind an "@", where it
// is not the program's own, since a program may do something else by another name, and goes on as its stub.
const argvDir = "/argv"

var argvNames = []string{"git", "docker", "kubectl", "npm", "touch", "a", "b", "x"}

// argvMain is one of those programs.
func argvMain(name string) error {
	if filepath.Base(os.Args[0]) != name {
		file, err := os.OpenFile(fmt.Sprintf("/l/p.%d", os.Getpid()), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
		if err != nil {
			return err
		}
		argv := append([]string{"@" + os.Args[0]}, os.Args[1:]...)
		if _, err := file.WriteString(strings.Join(argv, "\x00") + recordEnd); err != nil {
			return err
		}
	}
	return syscall.Exec("/bin/dash", append([]string{"dash", "/stub/" + name}, os.Args[1:]...), os.Environ())
}

// installSelf makes this program be those in argvDir. It is large, and there may be as many oracles as processors, so
// it is copied only where others may not run it.
func installSelf(root string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Mkdir(root+argvDir, 0o755); err != nil {
		return err
	}
	info, err := os.Stat(self)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o005 != 0o005 {
		b, err := os.ReadFile(self)
		if err != nil {
			return err
		}
		self = root + "/self"
		if err := os.WriteFile(self, b, 0o755); err != nil {
			return err
		}
	}
	for _, name := range argvNames {
		file := filepath.Join(root, argvDir, name)
		if err := os.WriteFile(file, nil, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(self, file, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", file, err)
		}
	}
	return nil
}

var library = regexp.MustCompile(`(/\S+) \(0x`)

// install copies a program and its libraries below root.
func install(root, program string) error {
	out, err := exec.Command("/usr/bin/ldd", program).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ldd %s: %w: %s", program, err, out)
	}
	files := []string{program}
	for _, m := range library.FindAllStringSubmatch(string(out), -1) {
		files = append(files, m[1])
	}
	for _, f := range files {
		if _, err := os.Stat(root + f); err == nil {
			continue
		}
		b, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(root+f), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(root+f, b, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// oracleFile is there before a text runs, and so may be read.
const oracleFile, oracleText = "/w/in", "in\n"

// oracleScripts are there too, by their paths. Each writes down that it was run, as a stub does.
var oracleScripts = func() map[string]string {
	all := make(map[string]string)
	for _, dir := range []string{"/w/", "/w/d/", "/w/d/e/", "/w/d/inner/", "/w/~/"} {
		all[dir+"s"] = "#!/bin/dash\nprintf '%s\\0' " + quoted(dir+"s") + " '\x01' >>/l/p.$$\n"
		all[dir+"s.pl"] = "open(F, '>>', '/l/p.'.$$); print F \"" + dir + "s.pl\\0\\x01\\0\";\n"
	}
	return all
}()

// oracleLink leads to another directory than it stands in.
const oracleLink = "/w/link"

// oracleBack leads to where texts start.
const oracleBack = "/w/d/back"

// startUp are files that some shells run first, of the home directory or by the variable ENV. None of the texts
// speaks of them; each makes a file that no rule allows.
var startUp = []string{".bash_profile", ".bash_login", ".profile", ".bashrc", ".bash_logout", ".shrc"}

// startUpFile is the file that a start-up file makes.
func startUpFile(name string) string { return "/w/STARTED" + name }

// isStartUp reports whether a file is a start-up file that nobody has changed.
func isStartUp(file string, text []byte) bool {
	name := filepath.Base(file)
	return slices.Contains(startUp, name) && string(text) == startUpText(name)
}

func startUpText(name string) string { return ">" + startUpFile(name) + "\n" }

// serve runs one text and answers with what it did.
func serve(shell, text string, around surroundings) error {
	for _, dir := range []string{"/w", "/l"} {
		if err := empty(dir); err != nil {
			return err
		}
	}
	for _, dir := range oracleDirs[1:] {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		if err := os.Chown(dir, 65534, 65534); err != nil {
			return err
		}
	}
	for link, to := range map[string]string{oracleLink: "d/e", oracleBack: "/w"} {
		if err := os.Symlink(to, link); err != nil {
			return err
		}
	}
	if err := os.WriteFile(oracleFile, []byte(oracleText), 0o600); err != nil {
		return err
	}
	if err := os.Chown(oracleFile, 65534, 65534); err != nil {
		return err
	}
	for file, text := range oracleScripts {
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			return err
		}
	}
	for _, name := range startUp {
		if err := os.WriteFile(filepath.Join(around.home, name), []byte(startUpText(name)), 0o644); err != nil {
			return err
		}
	}
	opens, err := watchOpens()
	if err != nil {
		return err
	}
	trace, err := os.OpenFile("/l/trace", os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	status := runShell(shell, text, trace, around)
	_ = trace.Close()
	opened, err := opens()
	if err != nil {
		return err
	}
	unchanged := func(file string) bool {
		before, there := oracleScripts[file]
		if file == oracleFile {
			before, there = oracleText, true
		}
		b, err := os.ReadFile(file)
		return err == nil && (there && string(b) == before || isStartUp(file, b))
	}
	_ = filepath.WalkDir("/w", func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() && path != oracleLink && path != oracleBack && !unchanged(path) {
			status += "\x00" + path
		}
		return nil
	})
	programs, err := records()
	if err != nil {
		return err
	}
	traced, err := wholeUpTo("/l/trace", "\n")
	if err != nil {
		return err
	}
	for _, b := range [][]byte{programs, traced, []byte(status), []byte(strings.Join(opened, "\x00"))} {
		if err := writeBlock(os.Stdout, b); err != nil {
			return err
		}
	}
	return nil
}

// oracleDirs are the directories that a text finds.
var oracleDirs = []string{"/w", "/w/d", "/w/d/e", "/w/d/inner", "/w/~", "/w/~/d"}

// watchOpens has opens say which of the files in them have been opened since.
func watchOpens() (opens func() ([]string, error), err error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	there, dirs := make(map[string]bool), make(map[int32]string)
	for _, dir := range oracleDirs {
		wd, err := unix.InotifyAddWatch(fd, dir, unix.IN_OPEN)
		if err != nil {
			_ = unix.Close(fd)
			return nil, fmt.Errorf("watch %s: %w", dir, err)
		}
		dirs[int32(wd)] = dir
		entries, err := os.ReadDir(dir)
		if err != nil {
			_ = unix.Close(fd)
			return nil, err
		}
		for _, e := range entries {
			there[filepath.Join(dir, e.Name())] = e.Type().IsRegular() && !slices.Contains(startUp, e.Name())
		}
	}
	return func() (opened []string, err error) {
		defer func() { _ = unix.Close(fd) }()
		for buf := make([]byte, 64<<10); ; {
			n, err := unix.Read(fd, buf)
			if errors.Is(err, unix.EAGAIN) {
				slices.Sort(opened)
				return slices.Compact(opened), nil
			}
			if err != nil {
				return nil, err
			}
			for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
				end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
				name := string(bytes.TrimRight(b[unix.SizeofInotifyEvent:end], "\x00"))
				if file := filepath.Join(dirs[int32(binary.NativeEndian.Uint32(b))], name); there[file] {
					opened = append(opened, file)
				}
				b = b[end:]
			}
		}
	}, nil
}

// leadsTo is where a path leads from a directory on, as the kernel follows it past the oracle's links; "~" in a call's
// own home is home.
func leadsTo(from, name, home string) string {
	if !filepath.IsAbs(name) {
		name = from + "/" + name
	}
	if rest, is := strings.CutPrefix(name, sessionHome); is && home != "" && (rest == "" || rest[0] == '/') {
		name = home + rest
	}
	at := "/"
	for part := range strings.SplitSeq(name, "/") {
		if at = filepath.Join(at, part); at == oracleLink {
			at = "/w/d/e"
		} else if at == oracleBack {
			at = "/w"
		}
	}
	return at
}

// sessionHome is the home directory of a session, by which the rules know "~".
const sessionHome = "/home/tool"

// start is where a text starts.
func (s surroundings) start() string { return leadsTo("/w", s.workdir, "") }

// recordEnd ends what a stub or the handler writes down of one call.
const recordEnd = "\x00\x01\x00"

// records are what the stubs and the handler have written down. Each process has a
// file of its own, because bash writes a long record in pieces, and those of two
// that run at once would get mixed.
func records() ([]byte, error) {
	files, err := filepath.Glob("/l/p.*")
	if err != nil {
		return nil, err
	}
	var all []byte
	for _, f := range files {
		b, err := wholeUpTo(f, recordEnd)
		if err != nil {
			return nil, err
		}
		all = append(all, b...)
	}
	return all, nil
}

// wholeUpTo is what a file has of whole records: the last one may have been cut
// off when its writer was killed.
func wholeUpTo(file, end string) ([]byte, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	b = b[:min(len(b), 1<<20)]
	at := bytes.LastIndex(b, []byte(end))
	if at < 0 {
		return nil, nil
	}
	return b[:at+len(end)], nil
}

// traceFD is where no text is likely to redirect to.
const traceFD = 200

// handler is the function that bash calls for programs that there are not. dash
// drops variables of such a name, so env sets it.
const handler = "BASH_FUNC_command_not_found_handle%%=() { builtin printf '%s\\0' \"$@\" $'\\x01' >>/l/p.$BASHPID; }"

// patience is how long a text may take, and then what it has left in the
// background. One that computes ends after a second; few wait for what never comes.
var patience time.Duration

// limited lowers the limits that shells have from this process, without which a text could take
// what the machine has. The memory has room for this process too.
func limited() error {
	signal.Notify(make(chan os.Signal, 1), unix.SIGXCPU) // it goes on after its own second
	for what, n := range map[int]uint64{unix.RLIMIT_CPU: 1, unix.RLIMIT_FSIZE: 2 << 20, unix.RLIMIT_AS: 2 << 30, unix.RLIMIT_CORE: 0} {
		var l unix.Rlimit
		if err := unix.Getrlimit(what, &l); err != nil {
			return err
		}
		l.Cur = min(n, l.Max)
		if err := unix.Setrlimit(what, &l); err != nil {
			return err
		}
	}
	return nil
}

func runShell(shell, text string, trace *os.File, around surroundings) (status string) {
	argv := []string{"/bin/dash"}
	files := []*os.File{nil, nil, nil}
	programs := "/stub:/usr/bin:/bin"
	if around.argv {
		programs = argvDir + ":" + programs
	}
	env := []string{"PATH=" + programs, "HOME=" + around.home, "ENV=" + filepath.Join(around.home, ".shrc"), "LANG=C.UTF-8", "TERM=dumb", "PS4=\x02 "}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return "start: " + err.Error()
	}
	defer func() { _ = null.Close() }()
	for i := range files {
		files[i] = null
	}
	for name, value := range map[string]string{"OLDPWD": around.oldpwd, "CDPATH": around.cdpath, "PWD": around.pwd} {
		if value != "" {
			env = append(env, name+"="+value)
		}
	}
	if around.socket {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return "start: " + err.Error()
		}
		_ = unix.Close(pair[1]) // nothing more comes
		files[0] = os.NewFile(uintptr(pair[0]), "socket")
		env = append(env, "SHLVL=1")
		defer func() { _ = files[0].Close() }()
	}
	if shell == "bash" {
		argv = []string{"/bin/bash", "--noprofile", "--norc"}
		env = append(env, fmt.Sprintf("BASH_XTRACEFD=%d", traceFD), handler)
		files = append(files, make([]*os.File, traceFD-2)...)
		files[traceFD] = trace
	} else {
		files[2] = trace // it traces nowhere else
	}
	p, err := os.StartProcess(argv[0], append(argv, "-x", "-c", text), &os.ProcAttr{
		Dir: around.start(), Env: env, Files: files,
		Sys: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, Setsid: true},
	})
	if err != nil {
		return "start: " + err.Error()
	}
	killed := make(chan struct{})
	timer := time.AfterFunc(patience, func() {
		defer close(killed)
		_ = syscall.Kill(-1, syscall.SIGKILL)
	})
	// What it leaves in the background is listed too, if it comes to an end.
	for {
		switch pid, err := syscall.Wait4(-1, nil, 0, nil); {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // none is left
			if !timer.Stop() {
				<-killed // or it would meet the next text
			}
			return status
		case pid == p.Pid:
			if !timer.Reset(patience) {
				timer.Stop()
				status = "timeout"
			}
		}
	}
}

func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
