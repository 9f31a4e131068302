package network

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/toold/toold/internal/egress/netns"
	"github.com/toold/toold/internal/testrig"
)

// guest is whose servers they are: a user of the test's own, that may bind any port of the
// rig's namespace.
const guest, guestUID = "guest", 65533

// background runs a program as the guest, in the rig's network namespace, until the test ends
// or is killed, and waits until something listens at an address.
func (r *rig) background(at string, argv ...string) {
	r.t.Helper()
	t := r.t
	cmd := r.asGuest(append([]string{"sh", "-c", `"$@" </dev/null & cat; kill -QUIT $!; wait`, "sh"}, argv...)...)
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	alive, err := cmd.StdinPipe()
	must(t, err)
	_, err = netns.In(r.ns, func() (struct{}, error) { return struct{}{}, cmd.Start() })
	must(t, err)
	t.Cleanup(func() {
		_ = alive.Close()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s:\n%s", argv[0], log.String())
		}
	})
	testrig.Eventually(t, filepath.Base(argv[0])+" listens", func() bool {
		c, err := netns.In(r.ns, func() (net.Conn, error) { return net.Dial("tcp", at) })
		return err == nil && c.Close() == nil
	})
}

// asGuest is a command of the guest. Only it and what it starts know of that user.
func (r *rig) asGuest(argv ...string) *exec.Cmd {
	home := filepath.Join(r.dir, "guest")
	if _, err := os.Stat(home); err != nil {
		passwd := fmt.Sprintf("root:x:0:0::/:/bin/sh\n%s:x:%d:%d::%s:/bin/sh\n", guest, guestUID, guestUID, home)
		must(r.t, errors.Join(os.Mkdir(home, 0o755), os.Chown(home, guestUID, guestUID), os.WriteFile(filepath.Join(r.dir, "passwd"), []byte(passwd), 0o644)))
	}
	const as = `mount --bind "$0" /etc/passwd && exec setpriv --reuid=65533 --regid=65533 --clear-groups --inh-caps=+net_bind_service --ambient-caps=+net_bind_service -- "$@"`
	cmd := exec.Command("unshare", append([]string{"-m", "--propagation", "private", "sh", "-c", as, filepath.Join(r.dir, "passwd")}, argv...)...)
	cmd.Dir, cmd.Env = home, []string{"HOME=" + home, "PATH=/usr/bin:/bin", "LC_ALL=C"}
	return cmd
}

// run runs a command of the guest to its end.
func (r *rig) run(argv ...string) {
	r.t.Helper()
	if out, err := r.asGuest(argv...).CombinedOutput(); err != nil {
		r.t.Fatalf("%q: %v\n%s", argv, err, out)
	}
}

// repository makes guest/repo.git with a commit in it.
func (r *rig) repository() {
	r.t.Helper()
	r.run("sh", "-ec", `git init -q work && cd work && echo from the repository >readme && git add readme
		git -c user.name=x -c user.email=x@example.test commit -q -m x && git clone -q --bare . ../repo.git && git -C ../repo.git update-server-info`)
}

// sshd serves the guest's repositories by ssh at open:22, to the key that it puts into workDir.
func (r *rig) sshd() {
	r.t.Helper()
	r.run("sh", "-ec", `ssh-keygen -q -t ed25519 -N "" -f host; ssh-keygen -q -t ed25519 -N "" -f key
		printf 'restrict,command="git-shell -c \\"$SSH_ORIGINAL_COMMAND\\"" %s\n' "$(cat key.pub)" >authorized
		printf 'ListenAddress %s:22\nHostKey %s/host\nAuthorizedKeysFile %s/authorized\nStrictModes no\nUsePAM no\nPidFile none\n' "$0" "$HOME" "$HOME" >server.conf`, open)
	b, err := os.ReadFile(filepath.Join(r.dir, "guest/key"))
	must(r.t, err)
	must(r.t, os.WriteFile(filepath.Join(r.dir, "work/key"), b, 0o600))
	program := testrig.SSHD(r.t, filepath.Join(r.dir, "sshd"))
	r.background(open+":22", program, "-D", "-e", "-f", filepath.Join(r.dir, "guest/server.conf"))
}

// postgres is a server of that name at open:5432, where everybody is the guest.
func (r *rig) postgres() {
	r.t.Helper()
	bin := r.postgresBin()
	r.run(bin+"/initdb", "-D", "db", "-U", guest, "--auth=trust", "--no-sync", "--no-locale", "-E", "UTF8", "--no-instructions")
	r.run("sh", "-c", `echo "host all all all trust" >>db/pg_hba.conf`)
	r.background(open+":5432", bin+"/postgres", "-D", "db", "-c", "listen_addresses="+open, "-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "shared_buffers=1MB")
}

// postgresBin is where its programs are: this host's, or a copy of what scripts/install-clients
// has unpacked, since the guest may not be able to come to the source tree.
func (r *rig) postgresBin() string {
	r.t.Helper()
	const programs = "usr/lib/postgresql/*/bin"
	found, err := filepath.Glob("/" + programs + "/postgres")
	must(r.t, err)
	if len(found) == 0 {
		if _, err := os.Stat("../../bin/postgres"); err != nil {
			testrig.Skipf(r.t, "clients", "no PostgreSQL server: run scripts/install-clients")
		}
		at := filepath.Join(r.dir, "postgres")
		must(r.t, os.CopyFS(at, os.DirFS("../../bin/postgres")))
		found, err = filepath.Glob(filepath.Join(at, programs, "postgres"))
		must(r.t, err)
	}
	return filepath.Dir(found[len(found)-1])
}

// nameServer is whom the daemon asks for names that are not in its hosts file.
const nameServer = "10.20.0.53"

// zone is that server. It knows two names whose addresses are not always the same, and never
// answers for a third.
type zone struct {
	mu    sync.Mutex // guards asked
	asked map[string]int
}

// names begins to serve.
func (r *rig) names() *zone {
	r.t.Helper()
	c, err := netns.In(r.ns, func() (net.PacketConn, error) { return net.ListenPacket("udp4", nameServer+":53") })
	must(r.t, err)
	z := &zone{asked: make(map[string]int)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for buf := make([]byte, 1500); ; {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			if answer := z.answer(buf[:n]); answer != nil {
				_, _ = c.WriteTo(answer, from)
			}
		}
	}()
	r.t.Cleanup(func() { _ = c.Close(); <-done })
	return z
}

func (z *zone) times(name string) int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.asked[name]
}

func (z *zone) answer(query []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	name := strings.TrimSuffix(q.Name.String(), ".")
	m.Response, m.Additionals = true, nil
	if q.Type == dnsmessage.TypeA {
		z.mu.Lock()
		z.asked[name]++
		z.mu.Unlock()
	}
	var addrs []string
	switch name {
	case "silent.trap.example":
		return nil
	case "changes.trap.example":
		addrs = []string{public}
		if z.times(name) > 1 {
			addrs = []string{"127.0.0.1"}
		}
	case "mixed.trap.example":
		addrs = []string{"127.0.0.1", "10.0.0.1", public}
	default:
		m.RCode = dnsmessage.RCodeNameError
	}
	for _, a := range addrs {
		if q.Type == dnsmessage.TypeA {
			h := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET}
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: netip.MustParseAddr(a).As4()}})
		}
	}
	answer, err := m.Pack()
	if err != nil {
		return nil
	}
	return answer
}

// upgrade begins another protocol, and says so.
func upgrade(w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nserved upgraded\n")
}
