package agent

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/wire"
)

// An agent may say "not run" only where it was asked to look first, and only
// with what it has prepared.
func TestNotRunIsChecked(t *testing.T) {
	seen := payloadDone(run.Prepared{Targets: []run.Target{{Path: "/x"}}})
	seen.NotRun = true
	change := func(f func(*wire.Done)) wire.Done { d := seen; f(&d); return d }
	for name, tc := range map[string]struct {
		kind    exchangeKind
		expects bool
		d       wire.Done
		ok      bool
	}{
		"asked":       {exchangeRun, true, seen, true},
		"not asked":   {exchangeRun, false, seen, false},
		"prepare":     {exchangePrepare, false, seen, false},
		"ping":        {exchangeAsk, false, change(func(d *wire.Done) { d.Payload = nil }), false},
		"with exit":   {exchangeRun, true, change(func(d *wire.Done) { d.Exit = &run.Exit{Reason: run.ReasonExit} }), false},
		"with error":  {exchangeRun, true, change(func(d *wire.Done) { d.Err, d.Payload = run.Errorf(run.CodeStale, "x"), nil }), false},
		"refused":     {exchangeRun, true, change(func(d *wire.Done) { d.Refused, d.Payload = wire.RefusedUnknown, nil }), false},
		"with output": {exchangeRun, true, change(func(d *wire.Done) { d.OutputEnd = 1 }), false},
		"a result":    {exchangeRun, true, change(func(d *wire.Done) { d.Payload = encoded(run.Result{Title: "t", IsError: true}) }), false},
		"nothing":     {exchangeRun, true, change(func(d *wire.Done) { d.Payload = nil }), false},
	} {
		x := &exchange{kind: tc.kind, expects: tc.expects, wake: make(chan struct{}, 1)}
		_, err := x.take(wire.Head{Kind: wire.KindDone}, encoded(tc.d))
		if (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
		if tc.ok && (x.outcome.Prepared == nil || x.outcome.Result != nil) {
			t.Errorf("%s: %+v", name, x.outcome)
		}
	}
}

// canned is a connection that others have written to before.
type canned struct {
	net.Conn
	io.Reader
}

func (c canned) Read(p []byte) (int, error)      { return c.Reader.Read(p) }
func (c canned) SetReadDeadline(time.Time) error { return nil }

// FuzzExchange gives arbitrary messages to the daemon's end of an exchange.
func FuzzExchange(f *testing.F) {
	ok := encoded(doneWith(run.Result{Title: "t", Encoded: encoded(map[string]any{"a": 1})}, &run.Exit{Reason: run.ReasonExit}, 0))
	f.Add(wire.Frame(wire.Head{Kind: wire.KindDone, ID: 1}, ok), byte(2), true)
	f.Add(append(wire.Frame(wire.Head{Kind: wire.KindOutput, ID: 1}, []byte("out")), wire.Frame(wire.Head{Kind: wire.KindMetadata, ID: 1}, encoded(map[string]any{"n": "x"}))...), byte(2), false)
	f.Add(append(wire.Frame(wire.Head{Kind: wire.KindOffer, ID: 1, N: wire.MaxInline + 1}, nil), wire.Frame(wire.Head{Kind: wire.KindChunk, ID: 1}, []byte("x"))...), byte(1), false)
	f.Add(wire.Frame(wire.Head{Kind: wire.KindDone, ID: 1}, encoded(payloadDone(run.Prepared{Targets: []run.Target{{Path: "/x"}}, State: []byte("{}")}))), byte(1), false)
	f.Add(wire.Frame(wire.Head{Kind: wire.KindDone, ID: 1}, encoded(wire.Done{})), byte(0), false)
	notRun := payloadDone(run.Prepared{Targets: []run.Target{{Path: "/x"}}})
	notRun.NotRun = true
	f.Add(wire.Frame(wire.Head{Kind: wire.KindDone, ID: 1}, encoded(notRun)), byte(2), true)
	f.Fuzz(func(t *testing.T, data []byte, kind byte, split bool) {
		r := wire.NewReader(canned{Reader: bytes.NewReader(data)}, wire.MaxUp)
		x := &exchange{kind: exchangeKind(kind % 3), split: split, expects: split, wake: make(chan struct{}, 1), limit: window, granted: kind > 100}
		for {
			frame, err := r.Next()
			if err != nil {
				return
			}
			h, body, err := wire.ParseFrame(frame)
			if err != nil {
				return
			}
			last, err := x.take(h, body)
			if err != nil {
				return
			}
			if int64(len(x.pending.data)) != x.end || x.end > window || int64(len(x.body)) > wire.MaxBody {
				t.Fatalf("%d bytes wait, end %d, body %d", len(x.pending.data), x.end, len(x.body))
			}
			if !last {
				continue
			}
			if f := x.outcome; f != nil {
				notRun := x.kind == exchangeRun && f.Prepared != nil
				if notRun && (!x.expects || f.Result != nil || f.Err != nil) {
					t.Fatalf("not run: %+v", f)
				}
				if f.Err == nil && x.refused == nil && !notRun && (x.kind == exchangeRun) != (f.Result != nil) {
					t.Fatalf("outcome %+v of an exchange of kind %d", f, x.kind)
				}
				if f.Err != nil && f.Result != nil {
					t.Fatal("both")
				}
			}
			return
		}
	})
}

func FuzzHello(f *testing.F) {
	f.Add(encoded(wire.Hello{Version: 1, Nonce: testNonce}))
	f.Add(encoded(wire.Request{CallID: "a", Tool: "bash", Input: []byte("{}"), Prepared: &run.Prepared{}}))
	f.Add(encoded(wire.Welcome{Calls: []wire.CallState{{ID: "a"}}}))
	f.Fuzz(func(_ *testing.T, data []byte) {
		var h wire.Hello
		_ = wire.Unmarshal(data, &h)
		var r wire.Request
		_ = wire.Unmarshal(data, &r)
		_, _ = decodeWelcome(data)
	})
}

func TestChunkNeedsItsGrant(t *testing.T) {
	x := &exchange{kind: exchangeRun, wake: make(chan struct{}, 1)}
	if _, err := x.take(wire.Head{Kind: wire.KindOffer, N: wire.MaxInline + 1}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := x.take(wire.Head{Kind: wire.KindChunk}, []byte("x")); err == nil {
		t.Error("taken before the grant")
	}
	x.granted = true
	if _, err := x.take(wire.Head{Kind: wire.KindChunk}, []byte("x")); err != nil {
		t.Error(err)
	}
}
