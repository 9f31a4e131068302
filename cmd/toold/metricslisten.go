package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/netutil"

	"github.com/toold/toold/internal/descriptor"
)

// metricsConns is how many connections there may be to the metrics' listener; others wait in the
// kernel's queue. Everybody who can reach its address may connect, so that what is left of the
// daemon's descriptors must not depend on them.
func metricsConns() int { return max(1, min(64, descriptor.Share()/4)) }

// listenMetrics listens at addr; nil when that is empty.
func listenMetrics(addr string) (net.Listener, error) {
	if addr == "" {
		return nil, nil
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("metrics.listen: %w; choose another address, or an empty one to turn it off", err)
	}
	return netutil.LimitListener(ln, metricsConns()), nil
}

// addressOf is where ln really listens, which differs from what was configured
// where that is port 0; "off" when it is nil.
func addressOf(ln net.Listener) string {
	if ln == nil {
		return "off"
	}
	return ln.Addr().String()
}

// serveMetrics answers GET /metrics and nothing else until ctx ends: the API is
// never served over TCP. addr is what was configured.
func serveMetrics(ctx context.Context, ln net.Listener, addr string, metrics http.Handler, log *slog.Logger) {
	if ln == nil {
		return
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", notFromWeb(addr, metrics))
	srv := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    8 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() }) // scrapes come again
	defer stop()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		log.Error("metrics are not served any more", "error", err)
	}
}

// notFromWeb keeps out web pages that a browser on this host was lured to. One
// whose DNS name was changed to point here comes with that name as its Host, and
// only addresses, localhost and the name in metrics.listen are answered. One that
// asks for the address itself says where it is from, in headers that pages cannot
// set; what gets here without them is not shown to other origins by the browser.
func notFromWeb(listen string, next http.Handler) http.Handler {
	own := hostOf(listen)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		host := hostOf(r.Host)
		named := host == "localhost" || own != "" && strings.EqualFold(host, own) || net.ParseIP(host) != nil
		if site := r.Header.Get("Sec-Fetch-Site"); !named || r.Header.Get("Origin") != "" || site != "" && site != "none" && site != "same-origin" {
			http.Error(w, "ask by address, or by the name in metrics.listen, and not from a web page", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostOf is the host of an address with or without a port.
func hostOf(addr string) string {
	if h, _, err := net.SplitHostPort(addr); err == nil {
		return h
	}
	return strings.Trim(addr, "[]")
}
