package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// listenMetrics listens at addr; nil when that is empty.
func listenMetrics(addr string) (net.Listener, error) {
	if addr == "" {
		return nil, nil
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("metrics.listen: %w; choose another address, or an empty one to turn it off", err)
	}
	return ln, nil
}

// serveMetrics answers GET /metrics and nothing else until ctx ends. A browser
// that was lured here by a changed DNS name comes with that name as its Host and
// is refused: only addresses are answered.
func serveMetrics(ctx context.Context, ln net.Listener, metrics http.Handler, log *slog.Logger) {
	if ln == nil {
		return
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", onlyAddresses(metrics))
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

func onlyAddresses(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if r.Header.Get("Origin") != "" || host != "localhost" && net.ParseIP(host) == nil {
			http.Error(w, "ask by address, and not from a web page", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
