package server

import (
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// TestDiff: a patch comes byte for byte, as bytes of which nothing is said; the list only
// for those who name its type.
func TestDiff(t *testing.T) {
	d := start(t, nil)
	s := d.session(t, client.Options{}, client.SessionCreate{Name: "one"})
	c := d.client(client.Options{})
	q := client.DiffQuery{Paths: []string{"a b", "ü&path=x"}, Exclude: []string{"*.log", "!a&b"}, NoIgnored: true, Against: "before"}
	r, err := c.Diff(t.Context(), s.ID, q)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || string(got) != fakePatch {
		t.Errorf("the patch: %q, %v", got, err)
	}
	if leftOut, unreadable := r.Missing(); leftOut != 3 || unreadable != 2 {
		t.Errorf("missing in the patch: %d, %d", leftOut, unreadable)
	}
	if excluded, ignored := r.Omitted(); excluded != 4 || ignored != 5 {
		t.Errorf("left out of the patch: %d, %d", excluded, ignored)
	}
	if n := r.Converted(); n != 6 {
		t.Errorf("stored by git otherwise: %d", n)
	}
	if !reflect.DeepEqual(d.api.filter, q) {
		t.Errorf("asked for %+v, want %+v", d.api.filter, q)
	}
	q.After, q.Limit = "x", 7
	if l, err := c.Changes(t.Context(), "one", q); err == nil {
		t.Errorf("by name: %+v; the fake knows none", l)
	}
	l, err := c.Changes(t.Context(), s.ID, q)
	if err != nil || len(l.Items) != 1 || string(l.Items[0].Bytes) != "x\xff" || l.Next != "last" {
		t.Errorf("the list: %+v, %v", l, err)
	}
	if !reflect.DeepEqual(d.api.filter, q) {
		t.Errorf("asked for %+v, want %+v", d.api.filter, q)
	}
	path := "/v1/sessions/" + s.ID + "/diff"
	for accept, kind := range map[string]string{
		"": "application/octet-stream", "*/*": "application/octet-stream", "text/x-patch": "application/octet-stream",
		"application/json": "application/json", "text/plain, application/json;q=0.9": "application/json",
	} {
		resp, _ := d.do(t, "GET", path, "", "Accept", accept)
		if got := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || got != kind || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("Accept %q: %d, type %q, want %q", accept, resp.StatusCode, got, kind)
		}
	}
	if resp, body := d.do(t, "GET", path+"?after=last", "", "Accept", "application/json"); !strings.Contains(body, `"items":[]`) {
		t.Errorf("an empty page: %d %s", resp.StatusCode, body)
	}
}

// TestDiffQueries: bad values are refused before anything is read, for a patch pages too.
func TestDiffQueries(t *testing.T) {
	d := start(t, nil)
	s := d.session(t, client.Options{}, client.SessionCreate{})
	const list = "application/json"
	for _, tt := range []struct {
		query, accept string
		ok            bool
	}{
		{"?path=a&path=b/c&against=cp_1", "", true},
		{"?path=a&against=v1.2-rc_3&after=x&limit=10000", list, true},
		{"?exclude=*.log&exclude=b/&no_ignored=1", "", true},
		{"?no_ignored=0", list, true},
		{"?no_ignored=yes", list, false},
		{"?exclude=a%0ab", "", false},
		{"?limit=0", list, true},
		{"?after=" + strings.Repeat("x", 5460), list, true}, // the longest path there is, as base64
		{"?after=" + strings.Repeat("x", 10_000), list, false},
		{"?path=%00", "", false},
		{"?path=a%0ab", "", false},
		{"?path=%ff", "", false},
		{"?path=" + strings.Repeat("x", 5000), "", false},
		{"?against=", "", false},
		{"?against=..", "", false},
		{"?against=a%2fb", "", false},
		{"?against=a&against=b", "", false},
		{"?after=x", "", false},
		{"?limit=1", "", false},
		{"?after=", "", false},
		{"?limit=10001", list, false},
		{"?limit=-1", list, false},
		{"?after=a&after=b", list, false},
		{"?after=%1b", list, false},
		{"?stat=1", "", false},
		{"?Path=a", "", false},
	} {
		d.api.note(d.api.seen(), nil)
		resp, body := d.do(t, "GET", "/v1/sessions/"+s.ID+"/diff"+tt.query, "", "Accept", tt.accept)
		if (resp.StatusCode == 200) != tt.ok || (d.api.filter != nil) != tt.ok {
			t.Errorf("%s: %d %s, want ok=%v", tt.query, resp.StatusCode, body, tt.ok)
		}
		if !tt.ok && problem(t, body).Code != client.CodeInvalidRequest {
			t.Errorf("%s: %s, want invalid_request", tt.query, body)
		}
	}
}

// TestDiffCut: a patch that fails in the middle is cut, so that no part of it is taken
// for all.
func TestDiffCut(t *testing.T) {
	d := start(t, nil)
	s := d.made(t)
	direct := client.New(client.Options{Socket: d.socket})
	defer direct.Close()
	r, err := direct.Diff(t.Context(), s.ID, client.DiffQuery{Paths: []string{"broken"}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err == nil || string(got) != fakePatch {
		t.Errorf("%q, %v; want an error behind the part that came", got, err)
	}
	if logs := d.logs.String(); !testrig.Soon(func() bool { return strings.Contains(d.logs.String(), "the agent is gone") }) {
		t.Errorf("the log has no cause: %s", logs)
	}
}

// TestDiffEndsWithClient: a patch whose reader goes away is given up, and its place is
// free again. Places are few, and lists need one too.
func TestDiffEndsWithClient(t *testing.T) {
	d := start(t, func(c *Config) { c.MaxStreams = 1 })
	s := d.made(t)
	open := d.dial(t)
	if _, err := io.WriteString(open, "GET /v1/sessions/"+s.ID+"/diff?path=silent HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if !testrig.Soon(func() bool { return d.waiting() == 1 }) {
		t.Fatal("nothing is read")
	}
	for _, accept := range []string{"", "application/json"} {
		if resp, body := d.do(t, "GET", "/v1/sessions/"+s.ID+"/diff", "", "Accept", accept); resp.StatusCode != http.StatusTooManyRequests {
			t.Errorf("above the cap, Accept %q: %d %s, want 429", accept, resp.StatusCode, body)
		}
	}
	_ = open.Close()
	if !testrig.Soon(func() bool { return d.waiting() == 0 && d.streams.unused() }) {
		t.Error("it goes on without its client")
	}
	if resp, body := d.do(t, "GET", "/v1/sessions/"+s.ID+"/diff", ""); resp.StatusCode != 200 || body != fakePatch {
		t.Errorf("afterwards: %d %q", resp.StatusCode, body)
	}
}

// TestTreeRequests: what is asked for arrives as it is, and what conflicts is told by path.
func TestTreeRequests(t *testing.T) {
	d := start(t, nil)
	s := d.session(t, client.Options{}, client.SessionCreate{})
	c, ctx := d.client(client.Options{}), t.Context()
	only := func(_ any, err error) error { return err }
	apply := client.ApplyRequest{Paths: []string{"a"}, Exclude: []string{"*.o"}, DryRun: true, Force: true, Merge: true, IncludeSensitive: true}
	fork := client.ForkRequest{
		At: "cp_1", Name: "two", Permission: []client.RuleOf{{Permission: "bash", Pattern: "*", Action: "deny"}},
		Labels: map[string]string{"k": "v"}, TTL: client.Duration(time.Second), Env: map[string]string{"E": "1"}, Token: true,
	}
	for _, tt := range []struct {
		do   func() error
		want any
	}{
		{func() error { return only(c.Apply(ctx, s.ID, apply)) }, apply},
		{func() error { return only(c.Discard(ctx, s.ID, client.DiscardRequest{Paths: []string{"a"}})) }, client.DiscardRequest{Paths: []string{"a"}}},
		{func() error { return only(c.Checkpoint(ctx, s.ID, client.CheckpointCreate{Name: "v1"})) }, client.CheckpointCreate{Name: "v1"}},
		{func() error { return c.DropCheckpoint(ctx, s.ID, "v1.0") }, "v1.0"},
		{func() error { return only(c.Restore(ctx, s.ID, client.RestoreRequest{Checkpoint: "v1"})) }, client.RestoreRequest{Checkpoint: "v1"}},
		{func() error { return only(c.Fork(ctx, s.ID, fork)) }, fork},
	} {
		if err := tt.do(); err != nil || !reflect.DeepEqual(d.api.filter, tt.want) {
			t.Errorf("asked for %+v, %v, want %+v", d.api.filter, err, tt.want)
		}
	}
	_, err := c.Apply(ctx, s.ID, client.ApplyRequest{Paths: []string{"there"}})
	e := asError(t, err)
	if want := (client.Violation{Path: "there/x", Message: "it has another size"}); e.Code != client.CodeConflict || e.Status != 409 || len(e.Violations) != 1 || e.Violations[0] != want {
		t.Errorf("a conflict: %+v", e)
	}
	for _, name := range []string{"..", "a b", "a/b", "-x", "a\nb", strings.Repeat("x", 65)} {
		if err := c.DropCheckpoint(ctx, s.ID, name); asError(t, err).Code != client.CodeInvalidRequest {
			t.Errorf("drop %q: %v, want invalid_request", name, err)
		}
	}
	for _, body := range []string{`{"paths":"a"}`, `{"Paths":[]}`, `{"dry_run":1}`, `{"include-sensitive":true}`, `[]`} {
		if resp, answer := d.do(t, "POST", "/v1/sessions/"+s.ID+"/apply", body); resp.StatusCode != 400 {
			t.Errorf("%s: %d %s, want 400", body, resp.StatusCode, answer)
		}
	}
}
