package oci_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/toold/toold/internal/sandbox/oci"
)

// A hostile or careless /etc: nothing enters but files of the list that all users of
// the host may read, whatever lies beside them.
func TestHostEtc(t *testing.T) {
	root := t.TempDir()
	put := func(path, content string, mode os.FileMode) {
		t.Helper()
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(full, mode); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target, path string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(root, path)); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{}
	for path, content := range map[string]string{
		"/etc/java-17-openjdk/security/java.security":                      "1",
		"/etc/java-17-openjdk/security/policy/unlimited/default_US.policy": "2",
		"/etc/java/java-17/java-17.0.1/conf/net.properties":                "3",
		"/etc/ssl/openssl.cnf":                                             "4",
		"/etc/fonts/conf.d/10-x.conf":                                      "5",
		"/etc/terminfo/x/xterm-own":                                        "6",
		"/etc/maven/m2.conf":                                               "7",
		"/etc/python3.11/sitecustomize.py":                                 "8",
		"/etc/timezone":                                                    "9",
	} {
		put(path, content, 0o644)
		want[path] = content
	}
	link("../usr/lib/os-release", "/etc/os-release")
	want["/etc/os-release"] = "-> ../usr/lib/os-release"
	for _, path := range []string{
		"/etc/shadow", "/etc/passwd", "/etc/machine-id", "/etc/npmrc", "/etc/pip.conf", "/etc/gitconfig", "/etc/fstab", "/etc/krb5.keytab",
		"/etc/ssh/ssh_host_ed25519_key", "/etc/ssl/private/host.pem", "/etc/ssl/host.key", "/etc/pki/tls/host.key", "/etc/pki/java/own.jks",
		"/etc/maven/settings.xml", "/etc/maven/settings-security.xml", "/etc/perl/CPAN/Config.pm", "/etc/profile.d/token.sh",
		"/etc/java-17-openjdk/management/jmxremote.password", "/etc/java-17-openjdk/security/own.keystore",
		"/etc/fonts/.git-credentials", "/etc/xml/catalog.bak", "/etc/X11/xorg.conf", "/etc/environment", "/etc/docker/daemon.json",
	} {
		put(path, "secret", 0o644) // world-readable, as careless hosts have them
	}
	want["/etc/environment"], want["/etc/ssl/private"] = "", ""
	put("/etc/java-17-openjdk/security/java.policy", "secret", 0o640)
	put("/etc/java-17-openjdk/closed/logging.properties", "secret", 0o644)
	if err := os.Chmod(filepath.Join(root, "/etc/java-17-openjdk/closed"), 0o710); err != nil {
		t.Fatal(err)
	}
	put("/root/etc/vimrc", "secret", 0o644)
	link("/root/etc", "/etc/vim") // a directory of the list that is a link
	link("/root/etc/vimrc", "/etc/timezone.d")
	if err := os.Mkdir(filepath.Join(root, "/etc/lsb-release"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(root, "/etc/magic"), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := oci.HostEtc(root)
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range want {
		if shows, ok := got[path]; !ok || shows != content {
			t.Errorf("%s is %q, %t; want %q", path, shows, ok, content)
		}
	}
	for path, content := range got {
		if _, ok := want[path]; !ok || strings.Contains(content, "secret") {
			t.Errorf("%s enters: %q", path, content)
		}
	}
}

// On this host: what enters is a plain file that everyone may read.
func TestHostEtcHere(t *testing.T) {
	got, err := oci.HostEtc("/")
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range got {
		if content == "" || strings.HasPrefix(content, "-> ") {
			continue
		}
		if fi, err := os.Lstat(path); err != nil || !fi.Mode().IsRegular() || fi.Mode()&0o004 == 0 {
			t.Errorf("%s enters: %v, %v", path, fi, err)
		}
	}
}

// No link of /usr dangles in a session that does not on the host.
func TestLinksOfUsr(t *testing.T) {
	f := newFixture(t)
	const find = "find /usr -xtype l 2>/dev/null; true"
	here, err := exec.Command("/bin/sh", "-c", find).Output()
	if err != nil {
		t.Fatal(err)
	}
	known := strings.Split(string(here), "\n")
	var dangling []string
	for line := range strings.Lines(f.create(f.Spec()).out(find)) {
		if line = strings.TrimSuffix(line, "\n"); line != "" && !slices.Contains(known, line) {
			to, _ := os.Readlink(line)
			dangling = append(dangling, line+" -> "+to)
		}
	}
	if len(dangling) > 0 {
		t.Errorf("%d links of /usr lead nowhere in a session; their targets belong into etcTrees, or, with secrets, into etcBlank:\n%s",
			len(dangling), strings.Join(dangling[:min(20, len(dangling))], "\n"))
	}
}

// Programs of the host that need files of /etc work in a session as they do on the
// host; a session with a mount of its own has the same files.
func TestProgramsOfHost(t *testing.T) {
	f := newFixture(t)
	spec := f.Spec()
	spec.Limits.Memory, spec.Limits.Tmp, spec.Limits.PIDs = 1<<30, 64<<20, 256
	plain := f.create(spec)
	mounted := f.Spec()
	mounted.Worktree.Target = "/srv/work" // a skeleton of its own
	other := f.create(mounted)
	for _, p := range []struct{ program, script, want string }{
		{"cat", "cat /etc/os-release", "ID="},
		{"java", "java -version 2>&1", "Runtime"},
		{"javac", `echo 'class A { public static void main(String[] a) { System.out.println("compiled"); } }' >A.java && javac A.java && java A`, "compiled"},
		{"openssl", "openssl req -x509 -newkey rsa:2048 -nodes -keyout k -out c -days 1 -subj /CN=x 2>&1 && openssl x509 -in c -noout -subject", "CN = x"},
		{"python3", "/usr/bin/python3 -m venv --without-pip v && v/bin/python -c 'print(6*7)'", "42"},
		{"npm", "npm --version", "."},
		{"node", "node -p 6*7", "42"},
		{"perl", "perl -MNet::Config -e 'print exists $NetConfig{ftp_int_passive} ? q(net) : q(none)'", "net"},
		{"man", "man --path", "/usr/share/man"},
		{"fc-match", "fc-match --format=%{family} sans 2>&1", ""},
	} {
		if _, err := exec.Command("/bin/sh", "-c", "PATH=/usr/bin:/bin command -v "+p.program).Output(); err != nil {
			t.Logf("%s: not on this host", p.program)
			continue
		}
		r := plain.sh("cd /workspace && export HOME=/home/tool && " + p.script)
		if r.Code != 0 || r.Err != "" || !strings.Contains(r.Output, p.want) || strings.Contains(r.Output, "rror") {
			t.Errorf("%s: code %d, %s\n%s", p.script, r.Code, r.Err, r.Output)
		}
	}
	const list = "find /etc -type f -o -type l | grep -v -e ^/etc/alternatives -e ^/etc/ssl/certs | sort; cat /etc/services | wc -c"
	if a, b := plain.out(list), other.out(list); a != b || !strings.Contains(a, "/etc/services") {
		t.Errorf("/etc of a session with a place of its own differs:\n%s\nand\n%s", a, b)
	}
}
