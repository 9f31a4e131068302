package cli

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toold/toold/internal/testrig"
)

// guest is the user who logs in by ssh: one of those that every Debian has.
const guest, guestUID, guestGID = "daemon", 1, 1

// sshd serves the guest on a port of the loopback, as the guest, and returns what ssh
// needs in place of a host's name.
func (r *rig) sshd(t *testing.T) (destination string) {
	t.Helper()
	dir := filepath.Join(r.dir, "ssh")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("ssh"); err != nil {
		testrig.Skipf(t, "ssh", "no ssh: run scripts/install-deps")
	}
	program := testrig.SSHD(t, dir)
	port := freePort(t)
	config := fmt.Sprintf("Host far\n HostName 127.0.0.1\n Port %d\n IdentityFile %s/key\n UserKnownHostsFile %s/known\n StrictHostKeyChecking accept-new\n ControlMaster auto\n ControlPath %s/control\n", port, dir, dir, dir)
	server := fmt.Sprintf("ListenAddress 127.0.0.1:%d\nHostKey %s/host\nAuthorizedKeysFile %s/key.pub\nStrictModes no\nUsePAM no\nPidFile none\n", port, dir, dir)
	r.shell(t, `ssh-keygen -q -t ed25519 -N "" -f ssh/host; ssh-keygen -q -t ed25519 -N "" -f ssh/key
		printf %s "$1" >ssh/client.conf; printf %s "$2" >ssh/server.conf; chmod 644 ssh/key.pub; chown `+guest+` ssh/host`, config, server)
	cmd := exec.Command(program, "-D", "-e", "-f", filepath.Join(dir, "server.conf"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: guestUID, Gid: guestGID, Groups: []uint32{socketGID}}}
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = exec.Command("ssh", "-F", filepath.Join(dir, "client.conf"), "-O", "exit", guest+"@far").Run() // and with it sshd's end
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Log("log of sshd:\n" + log.String())
	})
	for end := time.Now().Add(bound); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			conn.Close()
			return "-F " + filepath.Join(dir, "client.conf") + " " + guest + "@far"
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

// The socket can be had on another host by ssh, as documented: toold sees the user who
// is logged in there.
func TestFromAnotherHost(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "config.toml")
	text := fmt.Sprintf("[daemon]\nsocket_group = \"users\"\n\n[tenant.far]\nuids = [%d]\n", guestUID)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newDaemon(t, "--config", config)
	destination := r.sshd(t)
	script := r.block(t, "docs/operations.md", "forward", "ci@build.example.com", destination)
	// The block ends the session; who has made it is still on record.
	shown := r.shell(t, script)
	if !strings.Contains(shown, "ended") {
		t.Errorf("no session was ended:\n%s", shown)
	}
	if got := r.toolctl(t, "session", "list", "--all", "--tenant", "far", "-o", "json"); !strings.Contains(got, `"tenant": "far"`) && !strings.Contains(got, `"tenant":"far"`) {
		t.Errorf("toold saw another user:\n%s", got)
	}
}
