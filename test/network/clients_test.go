package network

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/egress/netns"
	"github.com/toold/toold/internal/testrig"
)

// clients are real programs that fetch something from a server of the test's own. needs, run in
// the session, says whether the program is there. None of them is told of a proxy where the
// network is transparent.
var clients = []struct {
	name, needs, command, want string
	// serve starts a server that only this one needs.
	serve func(*rig)
	// relayed is the command where there are only proxies; "" for the same.
	relayed string
}{
	{name: "curl", needs: "command -v curl", command: "curl -sS --cacert ca.pem https://allowed.example/file", want: "served file"},
	{name: "git over https", needs: "command -v git", command: "git -c http.sslCAInfo=$PWD/ca.pem clone -q https://allowed.example/repo.git c && cat c/readme; rm -rf c", want: "from the repository"},
	{name: "git over ssh", needs: "command -v git && command -v ssh", serve: (*rig).sshd, command: gitOverSSH("ssh"), want: "pushed", relayed: gitOverSSH("ssh -o ProxyCommand='/run/toold/agent connect %h %p'")},
	{name: "npm", needs: "command -v npm", command: npm("https://allowed.example"), want: "module.exports = 'left'"},
	{name: "pip", needs: "/usr/bin/python3 -m pip --version", command: "d=$(mktemp -d); PIP_DISABLE_PIP_VERSION_CHECK=1 /usr/bin/python3 -m pip download --retries 0 -q --no-deps --no-cache-dir --cert ca.pem -d $d -i https://allowed.example/simple right 2>&1; ls $d", want: "right-1.0-py3-none-any.whl"},
	{name: "go", needs: "test -x /usr/local/go/bin/go", command: "cd $(mktemp -d) && SSL_CERT_FILE=/workspace/ca.pem GOFLAGS=-modcacherw GOMODCACHE=$PWD/m GOPROXY=https://allowed.example/go GONOSUMDB=* GOSUMDB=off GOTOOLCHAIN=local /usr/local/go/bin/go mod download -json example.test/mod@v1.0.0", want: `"Sum": "h1:`},
	{name: "apt", needs: "command -v apt-get", command: `d=$(mktemp -d); mkdir -p $d/lists/partial $d/cache/archives/partial $d/etc/apt.conf.d; echo "deb [trusted=yes] https://allowed.example/apt stable main" >$d/list; : >$d/status
		o="-o Dir::State::status=$d/status -o Dir::State::lists=$d/lists -o Dir::Cache=$d/cache -o Dir::Etc::sourcelist=$d/list -o Dir::Etc::sourceparts=- -o Dir::Etc::parts=$d/etc/apt.conf.d -o APT::Sandbox::User= -o Acquire::Retries=0 -o Acquire::https::CAInfo=$PWD/ca.pem "
		apt-get $o update 2>&1; apt-cache $o show straight 2>&1`, want: "Description: of the test"},
	{name: "apt, flat", needs: "command -v apt-get", command: `d=$(mktemp -d); mkdir -p $d/lists/partial $d/cache/archives/partial $d/etc/apt.conf.d; echo "deb [trusted=yes] http://allowed.example/flat ./" >$d/list; : >$d/status
		o="-o Dir::State::status=$d/status -o Dir::State::lists=$d/lists -o Dir::Cache=$d/cache -o Dir::Etc::sourcelist=$d/list -o Dir::Etc::sourceparts=- -o Dir::Etc::parts=$d/etc/apt.conf.d -o APT::Sandbox::User= -o Acquire::Retries=0 "
		apt-get $o update 2>&1; apt-cache $o show flat 2>&1`, want: "Description: flat, of the test"},
	{name: "node", needs: `node -e 'process.exit(typeof fetch == "function" ? 0 : 1)'`, command: `NODE_EXTRA_CA_CERTS=ca.pem node -e 'fetch("https://allowed.example/file").then(r=>r.text()).then(console.log)'`, want: "served file", relayed: "NODE_EXTRA_CA_CERTS=ca.pem node tunnel.js allowed.example"},
	{name: "java", needs: "java --list-modules | grep jdk.compiler", command: `t=/tmp/trusted; [ -e $t ] || keytool -importcert -noprompt -alias test -file ca.pem -keystore $t -storepass changeit 2>&1
		java -Djavax.net.ssl.trustStore=$t -Djavax.net.ssl.trustStorePassword=changeit Fetch.java https://allowed.example/file 2>&1`, want: "served file\nserved file\n"},
	{name: "psql", needs: "command -v psql", serve: (*rig).postgres, command: psql("allowed.example"), want: "from the server", relayed: "python3 forward.py 5432 allowed.example && " + psql("127.0.0.1")},
}

func psql(host string) string {
	return "PGCONNECT_TIMEOUT=20 psql -h " + host + " -U guest -d postgres -Atc \"select 'from ' || 'the server'\" 2>&1"
}

// documented is a block of docs/network.md.
func documented(t *testing.T, name string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/network.md")
	must(t, err)
	_, block, found := strings.Cut(string(page), ": "+name+" -->\n```")
	_, block, _ = strings.Cut(block, "\n")
	block, _, ended := strings.Cut(block, "```\n")
	if !found || !ended {
		t.Fatalf("docs/network.md has no block %s", name)
	}
	return block
}

func gitOverSSH(ssh string) string {
	return `export GIT_SSH_COMMAND="` + ssh + ` -F none -i /workspace/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/tmp/known -o BatchMode=yes"
		git clone -q guest@allowed.example:repo.git c 2>&1 && cd c && git -c user.name=x -c user.email=x@example.test commit -q --allow-empty -m more &&
		git push -q 2>&1 && git ls-remote | grep -q $(git rev-parse HEAD) && echo pushed; rm -rf /workspace/c`
}

func npm(registry string) string {
	return "cd $(mktemp -d) && npm install --cafile /workspace/ca.pem --registry " + registry + "/npm/ --fetch-retries 0 --no-audit --no-fund --loglevel error left 2>&1 && cat node_modules/left/index.js"
}

// fetchJava fetches an URL by both clients that Java has.
const fetchJava = `import java.net.*; import java.net.http.*;
public class Fetch { public static void main(String[] a) throws Exception {
	System.out.print(new String(new URL(a[0]).openStream().readAllBytes()));
	System.out.print(HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(a[0])).build(), HttpResponse.BodyHandlers.ofString()).body()); } }
`

// tunnelJS is what a Node that does not know NODE_USE_ENV_PROXY has to do.
const tunnelJS = `const at = new URL(process.env.https_proxy), host = process.argv[2]
require("http").request({ host: at.hostname, port: at.port, method: "CONNECT", path: host + ":443" }).on("connect", (answer, socket) => {
	if (answer.statusCode != 200) { console.log(answer.statusCode, answer.statusMessage); return socket.destroy() }
	require("https").get({ socket, agent: false, servername: host, host, path: "/file" }, r => r.pipe(process.stdout))
}).end()
`

// TestClients: each as it is, asked about, and denied when it asks for another host.
func TestClients(t *testing.T) {
	for _, on := range tiers {
		t.Run(on.name, func(t *testing.T) { testClients(t, newRig(t, on)) })
	}
}

func testClients(t *testing.T, r *rig) {
	work := r.workDir()
	must(t, os.WriteFile(filepath.Join(work, "Fetch.java"), []byte(fetchJava), 0o644))
	must(t, os.WriteFile(filepath.Join(work, "tunnel.js"), []byte(tunnelJS), 0o644))
	must(t, os.WriteFile(filepath.Join(work, "forward.py"), []byte(documented(t, "forward.py")), 0o644))
	r.site(work)
	s := r.session(client.SessionCreate{Worktree: client.Worktree{Source: work, Mode: client.WorktreeBind}})
	for _, c := range clients {
		command := c.command
		if r.tier.relayed && c.relayed != "" {
			command = c.relayed
		}
		t.Run(c.name, func(t *testing.T) {
			r.t = t
			if got := r.bash(s, c.needs); got.IsError {
				testrig.Skipf(t, "clients", "not in the session: run scripts/install-clients\n%s", got.Output)
			}
			if c.serve != nil {
				c.serve(r)
			}
			if got := r.bash(s, command); !strings.Contains(got.Output, c.want) {
				t.Errorf("allowed: %s", got.Output)
			}
			asked := r.answering(client.AnswerOnce)
			if got := r.bash(s, strings.ReplaceAll(command, "allowed.example", "asked.example")); !strings.Contains(got.Output, c.want) {
				t.Errorf("asked: %s", got.Output)
			}
			if n := asked(); n != 1 {
				t.Errorf("one host was asked about %d times", n)
			}
			got := r.bash(s, strings.ReplaceAll(command, "allowed.example", "denied.example"))
			if strings.Contains(got.Output, c.want) || !strings.Contains(got.Output, "was denied by default") {
				t.Errorf("denied: %s", got.Output)
			}
		})
	}
	if n := r.reached.Load(); n != 0 {
		t.Errorf("%d connections reached an address that no rule allows", n)
	}
}

// answering answers what is asked until the function that it returns is called, which says how
// much that was.
func (r *rig) answering(a client.Answer) (stop func() int) {
	ctx, cancel := context.WithCancel(context.Background())
	n := make(chan int)
	go func() {
		count := 0
		for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			list, err := r.client.ListApprovals(ctx, client.ApprovalQuery{})
			if err != nil {
				continue
			}
			for _, p := range list.Items {
				if _, err := r.client.AnswerApproval(ctx, p.ID, client.ApprovalAnswer{Answer: a}); err == nil {
					count++
				}
			}
		}
		n <- count
	}()
	return func() int { cancel(); return <-n }
}

// workDir is a worktree that everybody may write to.
func (r *rig) workDir() string {
	r.t.Helper()
	work := filepath.Join(r.dir, "work")
	must(r.t, errors.Join(os.Mkdir(work, 0o777), os.Chmod(work, 0o777)))
	return work
}

// newPKI makes a certificate for allowed.example, whose authority it writes to a file.
func newPKI(t *testing.T, file string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	root, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	must(t, err)
	must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root}), 0o644))
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "allowed.example"}, NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"allowed.example", "asked.example", "denied.example"}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), key)
	must(t, err)
	return tls.Certificate{Certificate: [][]byte{der, root}, PrivateKey: key}
}

func (r *rig) listen(at string) net.Listener {
	r.t.Helper()
	l, err := netns.In(r.ns, func() (net.Listener, error) {
		f, err := netns.Listen(netip.MustParseAddrPort(at))
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return netns.Listener(f)
	})
	must(r.t, err)
	return l
}

func (r *rig) https(at string, cert tls.Certificate, h http.Handler) {
	r.t.Helper()
	l := tls.NewListener(r.listen(at), &tls.Config{Certificates: []tls.Certificate{cert}})
	s := &http.Server{Handler: h, ReadHeaderTimeout: bound}
	done := make(chan struct{})
	go func() { _ = s.Serve(l); close(done) }()
	r.t.Cleanup(func() { _ = s.Close(); <-done })
}

// site serves a file, the repository, and a package of each kind at open:443, whose authority it
// writes to ca.pem in work.
func (r *rig) site(work string) {
	r.t.Helper()
	r.repository()
	pki := newPKI(r.t, filepath.Join(work, "ca.pem"))
	r.https(open+":443", pki, packages(r.t, filepath.Join(r.dir, "guest/repo.git")))
}

func packages(t *testing.T, repo string) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	give := func(path, content string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, content) })
	}
	give("/file", "served file\n")
	mux.Handle("/repo.git/", http.StripPrefix("/repo.git/", http.FileServer(http.Dir(repo))))
	tgz := tarball(t, map[string]string{"package/package.json": `{"name":"left","version":"1.0.0"}`, "package/index.js": "module.exports = 'left'\n"})
	sum := sha512.Sum512([]byte(tgz))
	mux.HandleFunc("/npm/left", func(w http.ResponseWriter, q *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"name": "left", "dist-tags": map[string]string{"latest": "1.0.0"}, "versions": map[string]any{"1.0.0": map[string]any{
			"name": "left", "version": "1.0.0", "dist": map[string]string{"tarball": "https://" + q.Host + "/npm/left-1.0.0.tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])},
		}}})
	})
	give("/npm/left-1.0.0.tgz", tgz)
	const wheel = "right-1.0-py3-none-any.whl"
	mux.HandleFunc("/simple/right/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<a href=/%s>%s</a>", wheel, wheel)
	})
	give("/"+wheel, zipped(t, map[string]string{
		"right.py": "", "right-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: right\nVersion: 1.0\n",
		"right-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n", "right-1.0.dist-info/RECORD": "",
	}))
	for _, arch := range []string{"amd64", "arm64"} {
		give("/apt/dists/stable/main/binary-"+arch+"/Packages", "Package: straight\nVersion: 1\nArchitecture: all\nMaintainer: x\nFilename: straight.deb\nSize: 1\nDescription: of the test\n")
	}
	const mod = "module example.test/mod\n\ngo 1.21\n"
	give("/go/example.test/mod/@v/v1.0.0.info", `{"Version":"v1.0.0"}`)
	give("/go/example.test/mod/@v/v1.0.0.mod", mod)
	give("/go/example.test/mod/@v/v1.0.0.zip", zipped(t, map[string]string{"example.test/mod@v1.0.0/go.mod": mod}))
	return mux
}

func tarball(t *testing.T, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, data := range files {
		must(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}))
		_, err := io.WriteString(w, data)
		must(t, err)
	}
	must(t, errors.Join(w.Close(), z.Close()))
	return b.String()
}

func zipped(t *testing.T, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, data := range files {
		w, err := z.Create(name)
		must(t, err)
		_, err = io.WriteString(w, data)
		must(t, err)
	}
	must(t, z.Close())
	return b.String()
}
