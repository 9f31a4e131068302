package attack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

// listeners lists the addresses at which a process listens for TCP, as /proc/net
// writes them.
func listeners(t *testing.T, pid int) (found []string) {
	t.Helper()
	own := map[string]bool{}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	must(t, err)
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "socket:[") {
			own[strings.Trim(to, "socket:[]")] = true
		}
	}
	if len(own) == 0 {
		t.Fatal("the daemon has no socket at all")
	}
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if errors.Is(err, os.ErrNotExist) {
			continue // a kernel without IPv6
		}
		must(t, err)
		for line := range strings.Lines(string(text)) {
			const listening = "0A"
			if f := strings.Fields(line); len(f) > 9 && f[3] == listening && own[f[9]] {
				found = append(found, f[1])
			}
		}
	}
	return found
}

// get asks over TCP with a header of the attacker's choice.
func get(t *testing.T, method, url, host string, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	must(t, err)
	r.Host = host
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(r)
	must(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(b)
}

// D10: what sessions do makes no new series, and nothing that they say is in one.
// Neither metrics nor a profiler are the tenants'.
func TestD10Metrics(t *testing.T) {
	s := newScene(t, "")
	must(t, os.Chmod(filepath.Dir(s.socket), 0o755))
	must(t, os.Chmod(s.socket, 0o666))
	scrape := func() string {
		text, err := s.asUser(0, "/metrics")
		if err != nil || !strings.HasSuffix(text, "\n200") {
			t.Fatalf("control: an admin got %q %v", text, err)
		}
		return text
	}
	series := func(text string) int { return strings.Count(text, "\ntoold_") }
	before := series(scrape())
	if before < 100 {
		t.Fatalf("control: %d series", before)
	}
	said := []string{"hostile", "/workspace"}
	for i := range 5 {
		name := fmt.Sprintf("hostile%d", i)
		x := s.session(t, s.a, client.SessionCreate{Name: name, Labels: map[string]string{name: name}})
		said = append(said, x.ID)
		bash(t, s.a, x.ID, "echo "+name+" >/tmp/"+name+"; exit "+fmt.Sprint(i))
		_, _ = tryCall(s.a, x.ID, name, map[string]any{name: name})
		_, err := s.a.EndSession(context.Background(), x.ID, client.EndOptions{Force: true})
		must(t, err)
	}
	text := scrape()
	if after := series(text); after != before {
		t.Errorf("%d series after some sessions, %d before", after, before)
	}
	for _, word := range said {
		if strings.Contains(text, word) {
			t.Errorf("what a session did is in the metrics: %s", word)
		}
	}
	for _, path := range []string{"/metrics", "/debug/pprof", "/debug/pprof/heap", "/debug/vars"} {
		if out, err := s.asUser(40001, path); err != nil || !strings.HasSuffix(out, "\n403") && !strings.HasSuffix(out, "\n404") {
			t.Errorf("a user of tenant a got %q %v for %s", out, err, path)
		}
	}
}

// D13: nothing listens for TCP unless it is configured, then it is the metrics and
// nothing else, and not for a web page.
func TestD13TCP(t *testing.T) {
	r := newScene(t, "")
	if got := listeners(t, r.daemon.Cmd.Process.Pid); len(got) != 0 {
		t.Errorf("without metrics.listen the daemon listens at %v", got)
	}
	config, err := os.ReadFile(r.config)
	must(t, err)
	r.kill(t)
	must(t, os.WriteFile(r.config, []byte(strings.Replace(string(config), `listen = ""`, `listen = "127.0.0.1:0"`, 1)), 0o600))
	r.start(t)
	got := listeners(t, r.daemon.Cmd.Process.Pid)
	if len(got) != 1 || !strings.HasPrefix(got[0], "0100007F:") {
		t.Fatalf("with a metrics.listen of 127.0.0.1 the daemon listens at %v", got)
	}
	port, err := strconv.ParseUint(strings.TrimPrefix(got[0], "0100007F:"), 16, 16)
	must(t, err)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	url := "http://" + address
	if code, body := get(t, "GET", url+"/metrics", address); code != 200 || !strings.Contains(body, "toold_build_info") {
		t.Fatalf("control: %d %.100q", code, body)
	}
	for _, path := range []string{"/", "/v1/version", "/v1/sessions", "/v1/approvals", "/v1/usage", "/v1/reload", "/debug/pprof/"} {
		for _, method := range []string{"GET", "POST"} {
			if code, body := get(t, method, url+path, address); code != 404 {
				t.Errorf("%s %s over TCP: %d %.100q", method, path, code, body)
			}
		}
	}
	for _, tt := range []struct {
		name, host string
		header     []string
	}{
		{"rebound name", "evil.example", nil},
		{"rebound name with the port", "evil.example" + address[strings.LastIndex(address, ":"):], nil},
		{"a page's script", address, []string{"Origin", "https://evil.example"}},
		{"a page's image", address, []string{"Sec-Fetch-Site", "cross-site"}},
	} {
		if code, body := get(t, "GET", url+"/metrics", tt.host, tt.header...); code != 403 || strings.Contains(body, "toold_") {
			t.Errorf("%s: %d %.100q", tt.name, code, body)
		}
	}
}
