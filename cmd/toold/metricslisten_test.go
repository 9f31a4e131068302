package main

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/netutil"
)

// TestMetricsListenerRefusesWebPages: what a browser would send on behalf of a page
// gets nothing, what a scraper sends does.
func TestMetricsListenerRefusesWebPages(t *testing.T) {
	for _, tt := range []struct {
		name, listen, host string
		header             [2]string
		want               int
	}{
		{"address", "127.0.0.1:9477", "127.0.0.1:9477", [2]string{}, 200},
		{"address without a port", "127.0.0.1:9477", "127.0.0.1", [2]string{}, 200},
		{"IPv6", "[::1]:9477", "[::1]:9477", [2]string{}, 200},
		{"IPv6 without a port", "[::1]:9477", "[::1]", [2]string{}, 200},
		{"localhost", "127.0.0.1:9477", "localhost:9477", [2]string{}, 200},
		{"typed into a browser", "127.0.0.1:9477", "127.0.0.1:9477", [2]string{"Sec-Fetch-Site", "none"}, 200},
		{"the configured name", "metrics.example.com:9477", "Metrics.example.com:9477", [2]string{}, 200},
		{"rebound name", "127.0.0.1:9477", "evil.example:9477", [2]string{}, 403},
		{"rebound name that looks like localhost", "127.0.0.1:9477", "localhost.evil.example", [2]string{}, 403},
		{"another name than the configured one", "metrics.example.com:9477", "evil.example", [2]string{}, 403},
		{"no host", ":9477", "", [2]string{}, 403},
		{"page of another origin", "127.0.0.1:9477", "127.0.0.1:9477", [2]string{"Origin", "https://evil.example"}, 403},
		{"page without an origin", "127.0.0.1:9477", "127.0.0.1:9477", [2]string{"Origin", "null"}, 403},
		{"image or script of a page", "127.0.0.1:9477", "127.0.0.1:9477", [2]string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"page of another port", "127.0.0.1:9477", "127.0.0.1:9477", [2]string{"Sec-Fetch-Site", "same-site"}, 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := notFromWeb(tt.listen, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "secret") }))
			r := httptest.NewRequest("GET", "/metrics", nil)
			r.Host = tt.host
			if tt.header[0] != "" {
				r.Header.Set(tt.header[0], tt.header[1])
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != tt.want || (w.Code == 200) != strings.Contains(w.Body.String(), "secret") {
				t.Errorf("got %d %q, want %d", w.Code, w.Body, tt.want)
			}
			if got := w.Header().Get("X-Content-Type-Options"); got != "nosniff" {
				t.Errorf("X-Content-Type-Options is %q", got)
			}
		})
	}
}

// startMetrics serves text at an address of its own until the test ends.
func startMetrics(t *testing.T, text string) (addr string) {
	t.Helper()
	ln, err := listenMetrics("127.0.0.1:0")
	mustNil(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		serveMetrics(ctx, ln, "127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, text)
		}), slog.New(slog.DiscardHandler))
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return ln.Addr().String()
}

// TestMetricsListenerHasNoAPI: over TCP there is GET /metrics and nothing else.
func TestMetricsListenerHasNoAPI(t *testing.T) {
	addr := startMetrics(t, "toold_build_info 1\n")
	ask := func(method, path string) int {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, nil)
		mustNil(t, err)
		resp, err := http.DefaultTransport.RoundTrip(r)
		mustNil(t, err)
		defer resp.Body.Close()
		return resp.StatusCode
	}
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if got := ask("GET", "/metrics"); got != 200 {
		t.Errorf("GET /metrics: %d", got)
	}
	for _, path := range []string{"/", "/v1/version", "/v1/sessions", "/v1/approvals", "/v1/reload", "/debug/pprof/", "/metrics/", "/v1/usage"} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			if got := ask(method, path); got != 404 {
				t.Errorf("%s %s: %d, want 404", method, path, got)
			}
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS", "TRACE"} {
		if got := ask(method, "/metrics"); got != 405 {
			t.Errorf("%s /metrics: %d, want 405", method, got)
		}
	}
}

// TestMetricsListenerIsBounded: connections beyond the bound wait, and get on when
// others end; none of them keeps the listener from closing.
func TestMetricsListenerIsBounded(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	mustNil(t, err)
	ln := netutil.LimitListener(inner, 2)
	accepted := make(chan net.Conn)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(accepted)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	})
	for range 3 {
		c, err := net.Dial("tcp", ln.Addr().String())
		mustNil(t, err)
		defer c.Close()
	}
	first, second := <-accepted, <-accepted
	select {
	case <-accepted:
		t.Fatal("a third connection was accepted beside the two that are allowed")
	case <-time.After(50 * time.Millisecond):
	}
	mustNil(t, first.Close())
	_ = first.Close() // a second time gives no second slot
	third := <-accepted
	mustNil(t, ln.Close()) // while Accept waits for a slot
	_ = ln.Close()
	wg.Wait()
	mustNil(t, second.Close())
	mustNil(t, third.Close())
}

// TestMetricsListenerCutsSlowHeaders: who sends no request loses the connection.
func TestMetricsListenerCutsSlowHeaders(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the header timeout")
	}
	c, err := net.Dial("tcp", startMetrics(t, ""))
	mustNil(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "GET /metrics HTTP/1.1\r\n")
	mustNil(t, err)
	mustNil(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	if _, err := bufio.NewReader(c).ReadString(0); err != io.EOF && !strings.Contains(err.Error(), "reset") {
		t.Errorf("got %v, want the end of the connection", err)
	}
}
