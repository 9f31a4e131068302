package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/policy"
)

// childEnv, when set, makes the test binary a writer of the log that it names
// (see TestMain).
const childEnv = "AUDIT_TEST_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		child(path)
	}
	os.Exit(m.Run())
}

func open(t testing.TB, c Config) *Log {
	t.Helper()
	if c.Path == "" {
		c.Path = filepath.Join(t.TempDir(), record.DefaultName)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	l, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	l.every = time.Hour // a test that takes long would be retried for
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func decision(n int) *judge.Decision {
	return &judge.Decision{
		Time: time.Now(), Principal: auth.Principal{UID: 1, GID: 2, PID: 3, Tenant: "ci"},
		Session: "ses_1", Call: fmt.Sprintf("call_%d", n), Tool: "bash", Profile: "build", InputHash: [32]byte{1},
		Input:    json.RawMessage(`{"command":"echo s3cret"}`),
		Verdict:  policy.Verdict{Action: policy.Allow, Rule: "config.toml:3", Pattern: `bash "echo s3cret"`, Request: policy.Request{Pattern: "echo s3cret"}},
		Requests: []judge.Judged{{Request: policy.Request{Permission: "bash", Pattern: "echo s3cret"}, Action: policy.Allow, Rule: "config.toml:3"}},
	}
}

func finished(n int) *client.Call {
	now := time.Now().UTC()
	return &client.Call{
		ID: fmt.Sprintf("call_%d", n), SessionID: "ses_1", Tool: "bash", Input: json.RawMessage(`{"command":"echo s3cret"}`),
		MessageID: "msg", Agent: "main", Model: "m", Extra: json.RawMessage("{\n \"a\": 1}"),
		Status: client.CallCompleted, Output: "s3cret output", Title: "s3cret title", IsError: true,
		Metadata: map[string]any{"exit_code": 3, "reason": "exit", "other": "s3cret"},
		Usage:    client.CallUsage{CPUMillis: 1, MaxMemoryBytes: 2, IOBytes: 3, DurationMillis: 4},
		Time:     client.CallTime{Queued: now, Started: &now, Ended: &now},
	}
}

// records reads the log at path and demands that it is unbroken.
func records(t testing.TB, path string) []record.Record {
	t.Helper()
	files, err := record.Files(path)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := record.Verify(files, record.Options{Whole: true})
	if err != nil {
		t.Fatal(err)
	}
	if sum.Break != nil {
		t.Fatalf("the log is broken: %v", sum.Break)
	}
	var all []record.Record
	err = record.Read(files, func(l record.Line) error {
		r, err := record.Decode(l.Text)
		if err == nil {
			all = append(all, *r)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func kinds(all []record.Record) string {
	var names []string
	for _, r := range all {
		names = append(names, string(r.Kind))
	}
	return strings.Join(names, " ")
}

func TestRecordsOfACall(t *testing.T) {
	l := open(t, Config{Strict: true})
	d := decision(1)
	d.Approver, d.ApprovalID, d.Verdict.Reason, d.Typed = "uid 0", "apr_1", "fine", true
	if err := l.Decided(d); err != nil {
		t.Fatal(err)
	}
	c := finished(1)
	c.Typed = true
	c.Permission = &client.CallPermission{Verdict: "allow", Rule: "config.toml:3", ApprovalID: "apr_1"}
	if err := l.Finished(d.Principal, c, [32]byte{2}); err != nil {
		t.Fatal(err)
	}
	gone := finished(2)
	gone.Time.Started, gone.Error, gone.Status = nil, &client.Error{Code: client.CodeDenied}, client.CallError
	if err := l.Finished(auth.Principal{Tenant: "ci"}, gone, [32]byte{}); err != nil {
		t.Fatal(err)
	}
	all := records(t, l.cfg.Path)
	if kinds(all) != "decision finished finished" {
		t.Fatalf("got %s", kinds(all))
	}
	r := all[0]
	if r.Tenant != "ci" || *r.Peer != (record.Peer{UID: 1, GID: 2, PID: 3}) || r.Session != "ses_1" || r.Call != "call_1" || r.Tool != "bash" ||
		r.Profile != "build" || !strings.HasPrefix(r.InputHash, "01000") || r.Verdict != "allow" || r.Rule != "config.toml:3" || r.Reason != "fine" ||
		r.Approver != "uid 0" || r.Approval != "apr_1" || !r.Caller.Typed || len(r.Requests) != 1 || r.Requests[0] != (record.Request{Permission: "bash", Action: "allow", Rule: "config.toml:3"}) {
		t.Errorf("decision: %+v", r)
	}
	r = all[1]
	if r.Status != "completed" || r.AgentReported == nil || r.AgentReported.Bill != (record.Bill{CPUMillis: 1, MaxMemoryBytes: 2, IOBytes: 3, DurationMillis: 4}) ||
		!r.AgentReported.IsError || r.AgentReported.Reason != "exit" || *r.AgentReported.Exit != 3 || !strings.HasPrefix(r.OutputHash, "0200") ||
		r.Caller.Agent != "main" || !r.Caller.Typed || string(r.Caller.Extra) != `{"a":1}` || r.Approval != "apr_1" || r.InputHash == "" || r.Started == nil {
		t.Errorf("finished: %+v", r)
	}
	if r = all[2]; r.Peer != nil || r.AgentReported != nil || r.Code != "denied" {
		t.Errorf("a call that did not run, of a peer that is not known: %+v", r)
	}
}

// TestNoSecrets: without audit.inputs nothing of inputs and outputs is in the
// log, whatever field they came in.
func TestNoSecrets(t *testing.T) {
	for _, inputs := range []bool{false, true} {
		l := open(t, Config{Inputs: inputs})
		_ = l.Decided(decision(1))
		_ = l.Finished(auth.Principal{PID: 1}, finished(1), [32]byte{})
		text, err := os.ReadFile(l.cfg.Path)
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(text, []byte("s3cret")); inputs && n != 1 || !inputs && n != 0 {
			t.Errorf("inputs = %t: %d times\n%s", inputs, n, text)
		}
	}
}

func TestLongFields(t *testing.T) {
	l := open(t, Config{Inputs: true, Strict: true})
	d := decision(1)
	d.Input = json.RawMessage(`"` + strings.Repeat("x", record.MaxInput) + `"`)
	d.Verdict.Reason = strings.Repeat("ü", maxReason)
	d.Requests = make([]judge.Judged, maxRequests+7)
	if err := l.Decided(d); err != nil {
		t.Fatal(err)
	}
	r := records(t, l.cfg.Path)[0]
	if r.Input != nil || r.InputBytes != record.MaxInput+2 || len(r.Reason) > maxReason+8 || len(r.Requests) != maxRequests || r.RequestsMore != 7 {
		t.Errorf("input %d, reason %d, requests %d and %d more", r.InputBytes, len(r.Reason), len(r.Requests), r.RequestsMore)
	}
}

func TestHostileText(t *testing.T) {
	l := open(t, Config{Inputs: true, Strict: true})
	fake := "a\n{\"seq\":2,\"kind\":\"decision\",\"verdict\":\"allow\"}\n\x1b[2K\u2028\u0085\xff"
	d := decision(1)
	in, err := json.Marshal(map[string]string{"command": fake})
	if err != nil {
		t.Fatal(err)
	}
	d.Input, d.Tool, d.Verdict.Reason = in, fake, fake
	if err := l.Decided(d); err != nil {
		t.Fatal(err)
	}
	c := finished(1)
	c.Key, c.Agent, c.Metadata["reason"] = fake, fake, fake
	if err := l.Finished(d.Principal, c, [32]byte{}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(l.cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n")); n != 2 || len(records(t, l.cfg.Path)) != 2 {
		t.Errorf("%d lines", n)
	}
	for i, b := range text {
		if b != '\n' && (b < ' ' || b > '~') {
			t.Fatalf("byte %d is %#x", i, b)
		}
	}
}

func TestChainGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), record.DefaultName)
	for i := range 4 {
		l := open(t, Config{Path: path, Rotate: 900})
		for j := range 5 {
			if err := l.Decided(decision(10*i + j)); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Errorf("closed twice: %v", err)
		}
		if i == 2 { // as a daemon leaves it that died between renaming and beginning
			old, err := record.Files(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(path, record.OldName(path, 15)); err != nil || len(old) < 3 {
				t.Fatal(err, old)
			}
		}
	}
	all := records(t, path)
	if len(all) != 20 || all[19].Seq != 20 {
		t.Fatalf("%d records", len(all))
	}
	files, err := record.Files(path)
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		fi, err := os.Stat(f)
		if err != nil || fi.Mode().Perm() != 0o600 || fi.Size() > 900+700 {
			t.Errorf("%s: %v, %v", f, fi, err)
		}
	}
}

func TestAfterClose(t *testing.T) {
	l := open(t, Config{Strict: true})
	_ = l.Close()
	if err := l.Decided(decision(1)); err == nil || l.Errors() != 1 {
		t.Errorf("got %v, %d errors", err, l.Errors())
	}
}

func TestTornTail(t *testing.T) {
	l := open(t, Config{})
	_ = l.Decided(decision(1))
	_ = l.Decided(decision(2))
	_ = l.Close()
	whole, err := os.ReadFile(l.cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	first := bytes.IndexByte(whole, '\n') + 1
	tests := []struct {
		name, text, kinds, torn string
	}{
		{"in the middle", string(whole[:first+100]), "decision torn decision", string(whole[first : first+100])},
		{"but for the line's end", string(whole[:len(whole)-1]), "decision torn decision", string(whole[first : len(whole)-1])},
		{"zeros", string(whole) + strings.Repeat("\x00", 70<<10), "decision decision torn decision", strings.Repeat("\x00", record.MaxTorn)},
		{"nothing else", "{\"seq", "torn decision", "{\"seq"},
		{"nothing torn", string(whole), "decision decision decision", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), record.DefaultName)
			if err := os.WriteFile(path, []byte(tt.text), 0o644); err != nil {
				t.Fatal(err)
			}
			l := open(t, Config{Path: path, Strict: true})
			if err := l.Decided(decision(3)); err != nil {
				t.Fatal(err)
			}
			all := records(t, path)
			if kinds(all) != tt.kinds {
				t.Fatalf("got %s, want %s", kinds(all), tt.kinds)
			}
			if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", fi, err)
			}
			for _, r := range all {
				if r.Torn != nil && string(r.Torn.Start) != tt.torn {
					t.Errorf("evidence is %q, want %q", r.Torn.Start, tt.torn)
				}
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	good := func(t *testing.T) string {
		l := open(t, Config{})
		_ = l.Decided(decision(1))
		_ = l.Decided(decision(2))
		_ = l.Close()
		return l.cfg.Path
	}
	tests := []struct {
		name string
		make func(t *testing.T) string
		want string
	}{
		{"no directory", func(t *testing.T) string { return filepath.Join(t.TempDir(), "none", "x") }, "no such file"},
		{"a directory", func(t *testing.T) string { return t.TempDir() }, "is a directory"},
		{"a link", func(t *testing.T) string {
			p := filepath.Join(t.TempDir(), "l")
			if err := os.Symlink(good(t), p); err != nil {
				t.Fatal(err)
			}
			return p
		}, "too many levels"},
		{"a pipe", func(t *testing.T) string {
			p := filepath.Join(t.TempDir(), "p")
			if err := syscall.Mkfifo(p, 0o600); err != nil {
				t.Fatal(err)
			}
			return p
		}, "not a regular file"},
		{"another daemon's", func(t *testing.T) string { return open(t, Config{}).cfg.Path }, "another daemon"},
		{"last record changed", func(t *testing.T) string {
			p := good(t)
			edit(t, p, func(b []byte) []byte { return append(b[:len(b)-90], append([]byte("x"), b[len(b)-89:]...)...) })
			return p
		}, "its last record is damaged"},
		{"last line something else", func(t *testing.T) string {
			p := good(t)
			edit(t, p, func(b []byte) []byte { return append(b, "hello\n"...) })
			return p
		}, "its last record is damaged"},
		{"last line endless", func(t *testing.T) string {
			p := good(t)
			edit(t, p, func(b []byte) []byte {
				return append(append(b, bytes.Repeat([]byte("x"), record.MaxLine+1)...), '\n')
			})
			return p
		}, "longer than a line"},
		{"first line something else", func(t *testing.T) string {
			p := good(t)
			edit(t, p, func(b []byte) []byte { return append([]byte("hello\n"), b...) })
			return p
		}, "its first record is damaged"},
		{"the file before it torn", func(t *testing.T) string {
			p := good(t)
			edit(t, p, func(b []byte) []byte { return b[:len(b)-1] })
			if err := os.Rename(p, record.OldName(p, 1)); err != nil {
				t.Fatal(err)
			}
			return p
		}, "does not end with a record"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, err := Open(Config{Path: tt.make(t), Log: slog.New(slog.DiscardHandler)})
			if err == nil {
				_ = l.Close()
				t.Fatal("it was opened")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func edit(t *testing.T, path string, fn func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, fn(b), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestConcurrent(t *testing.T) {
	l := open(t, Config{Strict: true, Rotate: 16 << 10})
	const writers, each = 8, 50
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if err := l.Decided(decision(w*each + i)); err != nil {
					t.Error(err)
				}
				if err := l.Finished(auth.Principal{PID: 1}, finished(w*each+i), [32]byte{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := len(records(t, l.cfg.Path)); n != 2*writers*each {
		t.Errorf("%d records", n)
	}
}

func BenchmarkCall(b *testing.B) {
	l := open(b, Config{Strict: true, Rotate: 64 << 20})
	d, c := decision(1), finished(1)
	b.ReportAllocs()
	for b.Loop() {
		if err := l.Decided(d); err != nil {
			b.Fatal(err)
		}
		if err := l.Finished(d.Principal, c, [32]byte{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	l := open(b, Config{})
	for i := range 5000 {
		_ = l.Decided(decision(i))
	}
	fi, err := os.Stat(l.cfg.Path)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(fi.Size())
	for b.Loop() {
		if sum, err := record.Verify([]string{l.cfg.Path}, record.Options{}); err != nil || sum.Break != nil {
			b.Fatal(err, sum)
		}
	}
}

// TestWorktree: what is done with the changes of a session is on record, of its tenant and
// by whom; where that cannot be, strict mode refuses it.
func TestWorktree(t *testing.T) {
	l := open(t, Config{Strict: true})
	who := auth.Principal{UID: 1, GID: 2, PID: 3, Tenant: "default", Admin: true}
	s := &client.Session{ID: "ses_1", Tenant: "ci", Profile: "build"}
	w := record.Worktree{Operation: "apply", Paths: 2, Force: true}
	if err := l.Worktree(who, s, w); err != nil {
		t.Fatal(err)
	}
	r := records(t, l.cfg.Path)[0]
	if r.Kind != record.KindWorktree || r.Session != "ses_1" || r.Tenant != "ci" || r.Peer == nil || r.Peer.UID != 1 || !r.Peer.AsAdmin || r.Worktree == nil || *r.Worktree != w {
		t.Errorf("got %+v", r)
	}
	if err := l.Admin(who, record.Admin{Operation: "drain"}); err != nil {
		t.Fatal(err)
	}
	if r := records(t, l.cfg.Path)[1]; r.Kind != record.KindAdmin || r.Admin == nil || r.Admin.Operation != "drain" || r.Peer == nil || r.Peer.UID != 1 || r.Tenant != "default" {
		t.Errorf("got %+v", r)
	}
	l.f = &faulty{file: l.f}
	if err := errors.Join(l.Worktree(who, s, w), l.Admin(who, record.Admin{})); err == nil || !strings.Contains(err.Error(), "\n") {
		t.Errorf("something was not refused: %v", err)
	}
}
