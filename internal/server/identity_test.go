package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/testrig"
)

func TestResolve(t *testing.T) {
	id := NewIdentity(IdentityConfig{
		Admins: Peers{UIDs: []uint32{0}, GIDs: []uint32{900}},
		Tenants: map[string]Peers{
			"a": {UIDs: []uint32{1001}, GIDs: []uint32{500}},
			"b": {UIDs: []uint32{1002}, GIDs: []uint32{600, overflowUID}},
		},
	})
	for _, tt := range []struct {
		name   string
		peer   peer
		tenant string // "" for refused
		admin  bool
	}{
		{"root", peer{known: true}, auth.DefaultTenant, true},
		{"unknown connection", peer{}, "", false},
		{"by uid", peer{known: true, uid: 1001, gid: 1001}, "a", false},
		{"uid before group", peer{known: true, uid: 1001, gid: 600}, "a", false},
		{"uid before admins' group", peer{known: true, uid: 1001, gid: 900}, "a", false},
		{"by group", peer{known: true, uid: 7, gid: 500}, "a", false},
		{"by supplementary group", peer{known: true, uid: 7, gid: 7, groups: []uint32{8, 600}}, "b", false},
		{"admin by group", peer{known: true, uid: 7, gid: 7, groups: []uint32{600, 900}}, auth.DefaultTenant, true},
		{"groups of two tenants", peer{known: true, uid: 7, gid: 500, groups: []uint32{600}}, "", false},
		{"two groups of one tenant", peer{known: true, uid: 7, gid: 600, groups: []uint32{600}}, "b", false},
		{"nobody's", peer{known: true, uid: 7, gid: 7}, "", false},
		{"unmapped", peer{known: true, uid: overflowUID, gid: overflowUID}, "", false},
		{"root of a container", peer{known: true, uid: 200000, gid: 200000}, "", false},
	} {
		who, err := id.resolve(tt.peer)
		if (err == nil) != (tt.tenant != "") {
			t.Errorf("%s: error %v, want tenant %q", tt.name, err, tt.tenant)
		} else if err == nil && (who.Tenant != tt.tenant || who.Admin != tt.admin) {
			t.Errorf("%s: %+v, want tenant %q, admin %v", tt.name, who, tt.tenant, tt.admin)
		}
	}
	nobody := NewIdentity(IdentityConfig{Tenants: map[string]Peers{"n": {UIDs: []uint32{overflowUID}}}})
	if who, err := nobody.resolve(peer{known: true, uid: overflowUID}); err != nil || who.Tenant != "n" {
		t.Errorf("uid %d, configured: %+v, %v; want tenant n", overflowUID, who, err)
	}
}

// needRoot skips what only root can test; TOOLD_TEST_REQUIRE=root makes that an error.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		testrig.Skipf(t, "root", "connecting as other users needs root")
	}
}

// dialAs connects as another user. The kernel notes the credentials of the thread
// that connects; the thread ends with the goroutine, since it stays locked.
func (d *daemon) dialAs(t *testing.T, uid, gid uint32, groups ...uint32) net.Conn {
	t.Helper()
	type result struct {
		c   net.Conn
		err error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread()
		groups = append(groups, gid)
		for _, call := range [][4]uintptr{
			{unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&groups[0]))},
			{unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)},
			{unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)},
		} {
			if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
				done <- result{nil, errno}
				return
			}
		}
		c, err := net.Dial("unix", d.socket)
		done <- result{c, err}
	}()
	r := <-done
	if r.err != nil {
		t.Fatalf("connect as %d: %v", uid, r.err)
	}
	t.Cleanup(func() { _ = r.c.Close() })
	return r.c
}

// ask sends a GET over c and gives the status and the body.
func ask(t *testing.T, c net.Conn, path string, header ...string) (int, string) {
	t.Helper()
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n", path, strings.Join(header, ""))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// post sends a JSON body over c and gives the status.
func post(t *testing.T, c net.Conn, path, body string) int {
	t.Helper()
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// TestPeers: who connects decides, over real sockets.
func TestPeers(t *testing.T) {
	needRoot(t)
	d := start(t, func(c *Config) {
		c.Identity = NewIdentity(IdentityConfig{
			Admins:  Peers{UIDs: []uint32{0}, GIDs: []uint32{40900}},
			Tenants: map[string]Peers{"a": {UIDs: []uint32{40001}}, "b": {GIDs: []uint32{40600}}},
		})
	})
	many := make([]uint32, 200)
	for i := range many {
		many[i] = uint32(41000 + i)
	}
	for _, tt := range []struct {
		name     string
		uid, gid uint32
		groups   []uint32
		tenant   string
		admin    bool
	}{
		{"tenant", 40001, 40001, nil, "a", false},
		{"by supplementary group", 40003, 40003, []uint32{40600}, "b", false},
		{"by one of many groups", 40003, 40003, append(many, 40600), "b", false},
		{"admin by group", 40003, 40003, []uint32{40900}, "default", true},
		{"stranger", 40003, 40003, nil, "", false},
		{"overflow", overflowUID, overflowUID, nil, "", false},
		{"root of a container", 200000, 200000, nil, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := d.dialAs(t, tt.uid, tt.gid, tt.groups...)
			for _, path := range []string{"/v1/tools", "/v1/version", "/v1/health", "/v1/nothing"} {
				code, body := ask(t, c, path)
				if tt.tenant == "" && (code != 403 || problem(t, body).Code != client.CodeForbidden) {
					t.Errorf("GET %s: %d %s, want 403", path, code, body)
				} else if tt.tenant != "" && code == 403 {
					t.Errorf("GET %s: %d %s", path, code, body)
				}
			}
			if p := d.api.seen(); tt.tenant != "" && !slices.Equal(slices.Sorted(slices.Values(p.Groups)), slices.Sorted(slices.Values(append(tt.groups, tt.gid)))) {
				t.Errorf("groups %v, want %v", p.Groups, append(tt.groups, tt.gid))
			}
			if p := d.api.seen(); tt.tenant != "" && (p.UID != tt.uid || p.GID != tt.gid || p.Tenant != tt.tenant || p.Admin != tt.admin || p.PID != int32(os.Getpid())) {
				t.Errorf("principal %+v, want uid %d, tenant %s, admin %v", p, tt.uid, tt.tenant, tt.admin)
			}
			if code, body := ask(t, c, "/v1/doctor"); (code == 200) != tt.admin {
				t.Errorf("GET /v1/doctor: %d %s, want allowed=%v", code, body, tt.admin)
			}
			if code, body := ask(t, c, "/v1/sessions", "Toold-Tenant: a\r\n"); (code == 200) != (tt.admin || tt.tenant == "a") {
				t.Errorf("with Toold-Tenant: a: %d %s", code, body)
			}
		})
	}
}

// TestTokenOfStranger: the token is the right, whoever brings it, except peers
// that the kernel cannot name.
func TestTokenOfStranger(t *testing.T) {
	needRoot(t)
	d := start(t, nil)
	s := d.session(t, client.Options{Tenant: "a"}, client.SessionCreate{Token: true})
	auth := "Authorization: Bearer " + s.Token + "\r\n"
	if code, body := ask(t, d.dialAs(t, 40003, 40003), "/v1/sessions/"+s.ID, auth); code != 200 {
		t.Errorf("a stranger with the token: %d %s, want 200", code, body)
	}
	if p := d.api.seen(); p.Session != s.ID || p.Tenant != "a" || p.Admin || p.UID != 40003 {
		t.Errorf("principal %+v, want limited to %s of a", p, s.ID)
	}
	if code, body := ask(t, d.dialAs(t, overflowUID, overflowUID), "/v1/sessions/"+s.ID, auth); code != 403 {
		t.Errorf("an unmapped peer with the token: %d %s, want 403", code, body)
	}
}

// TestSetIdentity: a reload takes rights from connections that are open.
func TestSetIdentity(t *testing.T) {
	needRoot(t)
	d := start(t, nil)
	c := d.dialAs(t, 40001, 40001)
	s := d.session(t, client.Options{Tenant: "a"}, client.SessionCreate{Token: true})
	auth := "Authorization: Bearer " + s.Token + "\r\n"
	for _, header := range []string{"", auth} {
		if code, _ := ask(t, c, "/v1/tools", header); code != 200 {
			t.Fatalf("before: %d, want 200", code)
		}
	}
	d.SetIdentity(NewIdentity(IdentityConfig{Admins: Peers{UIDs: []uint32{0}}}))
	for _, header := range []string{"", auth} {
		if code, _ := ask(t, c, "/v1/tools", header); code != 403 {
			t.Errorf("after, with %q: %d, want 403", header, code)
		}
	}
}

// TestStrangersShareACap: connections of users that are nobody are bounded
// together, and take no place of those that are somebody.
func TestStrangersShareACap(t *testing.T) {
	needRoot(t)
	d := start(t, func(c *Config) { c.MaxConns = 4 })
	for i := range uint32(4) {
		if code, _ := ask(t, d.dialAs(t, 50000+i, 50000), "/v1/health"); code != 403 {
			t.Fatalf("stranger %d: %d, want 403", i, code)
		}
	}
	b, _ := io.ReadAll(d.dialAs(t, 51000, 50000))
	if status(string(b)) != "503 Service Unavailable" {
		t.Errorf("a stranger above the cap: %q, want 503", b)
	}
	if code, _ := ask(t, d.dialAs(t, 40001, 40001), "/v1/health"); code != 200 {
		t.Errorf("a tenant's user beside them: %d, want 200", code)
	}
}

// peerHelper makes the test binary connect and print the answer's status: as a
// child in a user namespace of its own.
const peerHelper = "TOOLD_TEST_PEER_SOCKET"

func TestMain(m *testing.M) {
	if socket := os.Getenv(peerHelper); socket != "" {
		c, err := net.Dial("unix", socket)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Fprint(c, "GET /v1/tools HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		line, _ := bufio.NewReader(c).ReadString('\n')
		fmt.Printf("uid %d: %s", os.Getuid(), line)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestRootOfUserNamespace: who is uid 0 in a namespace of its own is not uid 0.
// The control is the same child with the namespace's root mapped to a tenant.
func TestRootOfUserNamespace(t *testing.T) {
	needRoot(t)
	d := start(t, nil)
	exe := filepath.Join(filepath.Dir(d.socket), "peer")
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := testrig.WriteProgram(exe, self); err != nil {
		t.Fatal(err)
	}
	for host, want := range map[int]string{200000: "403", 40001: "200"} {
		cmd := exec.CommandContext(t.Context(), exe)
		cmd.Env = []string{peerHelper + "=" + d.socket}
		one := []syscall.SysProcIDMap{{ContainerID: 0, HostID: host, Size: 1}}
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWUSER, UidMappings: one, GidMappings: one,
			Credential: &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: true},
		}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "uid 0: HTTP/1.1 "+want) {
			t.Errorf("mapped to %d: %q, %v; want %s", host, out, err, want)
		}
	}
}
