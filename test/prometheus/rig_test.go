package prometheus

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

const (
	// bound is how long anything may take that only has to happen some time.
	bound = 60 * time.Second
	// deploy is where the files are that are tested.
	deploy = "../../deploy/prometheus"
)

// tools are the programs that are needed.
type tools struct{ prometheus, promtool, runc string }

// need finds the programs, or skips the test where they cannot run.
func need(t *testing.T) tools {
	t.Helper()
	var found tools
	why := ""
	if os.Geteuid() != 0 {
		why = "toold needs root"
	}
	for _, p := range []struct {
		at        *string
		name, get string
	}{
		{&found.prometheus, "prometheus", "scripts/install-prometheus"},
		{&found.promtool, "promtool", "scripts/install-prometheus"},
		{&found.runc, "runc", "make build"},
	} {
		own, err := filepath.Abs("../../bin/" + p.name)
		must(t, err)
		if _, err := os.Stat(own); err == nil {
			*p.at = own
		} else if *p.at, err = exec.LookPath(p.name); err != nil {
			why = cmp.Or(why, fmt.Sprintf("there is no %s, neither in bin/ nor in PATH: run %s", p.name, p.get))
		}
	}
	if why != "" {
		testrig.Skipf(t, "prometheus", "%s", why)
	}
	return found
}

// promtool runs it in the directory of what is deployed.
func (x tools) run(t *testing.T, stdin io.Reader, args ...string) {
	t.Helper()
	cmd := exec.Command(x.promtool, args...)
	cmd.Dir, cmd.Stdin = deploy, stdin
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// daemon is a toold with two tenants.
type daemon struct {
	config, metrics string // the file, and the address of the listener
	admin, ci       *client.Client
	*testrig.Daemon
}

// startDaemon builds toold and runs it with this configuration until the test ends.
func startDaemon(t *testing.T, x tools, config string) *daemon {
	t.Helper()
	dir := testrig.TempDir(t, "toold-prometheus-")
	must(t, testrig.Build(dir, "cmd/toold", "cmd/toolagent"))
	file := filepath.Join(dir, "config.toml")
	must(t, os.WriteFile(file, []byte(config), 0o600))

	cgroup, socket := filepath.Base(dir), testrig.Socket(dir)
	argv := append([]string{filepath.Join(dir, "toold"), "--ephemeral"}, testrig.Flags(dir, cgroup, testrig.UIDs(t))...)
	run, err := testrig.StartDaemon(socket, filepath.Join(dir, "log"),
		append(argv, "--config", file, "--log", "json", "--metrics-listen", "127.0.0.1:0")...)
	must(t, err)
	d := &daemon{
		config: file, Daemon: run,
		admin: client.New(client.Options{Socket: socket}), ci: client.New(client.Options{Socket: socket, Tenant: "ci"}),
	}
	t.Cleanup(func() {
		d.admin.Close()
		d.ci.Close()
		if err := errors.Join(d.CloseStdin(), testrig.RemoveCgroups(cgroup)); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log of toold:\n%s", d.Log())
		}
	})
	eventually(t, "toold says where its metrics are", func() error {
		for line := range strings.Lines(d.Log()) {
			var v struct{ Msg, Metrics string }
			if json.Unmarshal([]byte(line), &v) == nil && v.Metrics != "" {
				d.metrics = v.Metrics
				return nil
			}
		}
		return errors.New("not yet")
	})
	return d
}

// scrape gets the metrics as text.
func (d *daemon) scrape(t *testing.T) []byte {
	t.Helper()
	resp, err := http.Get("http://" + d.metrics + "/metrics")
	must(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(t, err)
	if resp.StatusCode != 200 {
		t.Fatalf("GET /metrics: %s\n%s", resp.Status, b)
	}
	return b
}

// server is a running Prometheus.
type server struct{ url string }

// startPrometheus runs the real one with the configuration that is deployed, but
// for the address that it scrapes and how often, until the test ends.
func startPrometheus(t *testing.T, x tools, target string) *server {
	t.Helper()
	dir := t.TempDir()
	config, err := os.ReadFile(filepath.Join(deploy, "prometheus.yml"))
	must(t, err)
	for _, r := range [][2]string{
		{`"127.0.0.1:9477"`, strconv.Quote(target)},
		{"scrape_interval: 15s", "scrape_interval: 1s"},
		{"evaluation_interval: 15s", "evaluation_interval: 1s"},
	} {
		if bytes.Count(config, []byte(r[0])) == 0 {
			t.Fatalf("prometheus.yml has no %s", r[0])
		}
		config = bytes.ReplaceAll(config, []byte(r[0]), []byte(r[1]))
	}
	must(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), config, 0o600))
	rules, err := os.ReadFile(filepath.Join(deploy, "alerts.yml"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "alerts.yml"), rules, 0o600))

	address := freeAddress(t)
	log, err := os.Create(filepath.Join(dir, "log"))
	must(t, err)
	cmd := exec.Command(x.prometheus, "--config.file", filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", address, "--log.level", "warn")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if b, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("log of Prometheus:\n%s", b)
		}
		_ = log.Close()
	})
	s := &server{"http://" + address}
	eventually(t, "Prometheus has scraped toold", func() error {
		if v, err := s.query(`up{job="toold"} == 1`); err != nil || len(v) == 0 {
			return errors.Join(err, fmt.Errorf("got %v", v))
		}
		return nil
	})
	return s
}

// freeAddress is one that nobody listens at now, on an address of the loopback
// interface that others do not use: they would be given the port by chance.
func freeAddress(t *testing.T) string {
	t.Helper()
	pid := os.Getpid()
	ln, err := net.Listen("tcp", fmt.Sprintf("127.94.%d.%d:0", pid>>8&0xff, pid&0xff))
	must(t, err)
	defer ln.Close()
	return ln.Addr().String()
}

// must ends the test with err, if there is one.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until ok has no error.
func eventually(t *testing.T, what string, ok func() error) {
	t.Helper()
	for end := time.Now().Add(bound); ; time.Sleep(100 * time.Millisecond) {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s: %v", bound, what, err)
		}
	}
}
