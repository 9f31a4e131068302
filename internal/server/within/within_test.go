package within

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

type key struct{}

func do(t *testing.T, h http.HandlerFunc) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", "http://x/a?b=c", strings.NewReader("asked"))
	if err != nil {
		t.Fatal(err)
	}
	return (&Transport{Handler: h, Context: func(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, "peer") }}).RoundTrip(r)
}

// TestAnswers: a handler sees the request and the context, and its answer arrives as it is
// written.
func TestAnswers(t *testing.T) {
	next := make(chan struct{})
	resp, err := do(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X", string(body)+" "+r.URL.Query().Get("b")+" "+r.Context().Value(key{}).(string))
		w.WriteHeader(http.StatusTeapot)
		w.Header().Set("X", "too late")
		_, _ = io.WriteString(w, "one ")
		<-next
		_, _ = io.WriteString(w, "two")
	})
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 4)
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "one " {
		t.Errorf("%q, %v", first, err)
	}
	close(next)
	rest, err := io.ReadAll(resp.Body)
	if err != nil || string(rest) != "two" || resp.StatusCode != http.StatusTeapot || resp.Header.Get("X") != "asked c peer" {
		t.Errorf("%d %q %v %v", resp.StatusCode, rest, resp.Header, err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
}

// TestEnds: an answer that is cut is so for its reader, and one that is given up ends its
// handler.
func TestEnds(t *testing.T) {
	resp, err := do(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		panic(http.ErrAbortHandler)
	})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(resp.Body); string(text) != "half" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%q, %v", text, err)
	}
	if resp, err := do(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v, %v", resp, err)
	}
	ended := false
	resp, err = do(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		ended = true
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || !ended {
		t.Errorf("%v, ended %v", err, ended)
	}
	if resp, err := do(t, func(http.ResponseWriter, *http.Request) {}); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("an answer of nothing: %v %v", resp, err)
	}
}
