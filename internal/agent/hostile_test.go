package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/wire"
)

// villain is an agent that a test controls byte by byte.
type villain struct {
	t  *testing.T
	c  *net.UnixConn
	in *wire.Reader
}

// newVillain connects a Conn to a villain that has said welcome.
func newVillain(t *testing.T) (*Conn, *villain) {
	t.Helper()
	a, b := testrig.Socketpair(t)
	v := &villain{t: t, c: b, in: wire.NewReader(b, wire.MaxDown)}
	ready := make(chan struct{})
	go func() {
		defer close(ready)
		v.receive()
		v.send(wire.Head{Kind: wire.KindWelcome}, wire.Welcome{Version: "evil"})
	}()
	c, _, err := Connect(t.Context(), a, Hello{Nonce: testNonce, Shell: []string{"sh"}})
	if err != nil {
		t.Fatal(err)
	}
	<-ready
	t.Cleanup(func() { c.Close() })
	return c, v
}

func (v *villain) receive() wire.Head {
	frame, err := v.in.Next()
	if err != nil {
		return wire.Head{}
	}
	h, _, _ := wire.ParseFrame(frame)
	return h
}

// send sends a message whose body is bytes, or a value to encode.
func (v *villain) send(h wire.Head, body any) {
	b, ok := body.([]byte)
	if !ok && body != nil {
		b, _ = wire.Marshal(body)
	}
	_, _ = v.c.Write(wire.Frame(h, b))
}

func doneWith(r run.Result, exit *run.Exit, end int64) wire.Done {
	b, _ := wire.Marshal(r)
	return wire.Done{Payload: b, Exit: exit, OutputEnd: end}
}

// nested is a CBOR value of n arrays in each other.
func nested(n int) []byte { return append(bytes.Repeat([]byte{0x81}, n), 0x00) }

func resultWithMetadata(m []byte) []byte {
	b, _ := wire.Marshal(wire.Done{Payload: append([]byte{0xa1, 0x04}, m...)})
	return b
}

// Everything here must end the connection as a violation, and no call may be
// answered by it.
func TestHostileAgent(t *testing.T) {
	exit := &run.Exit{Reason: run.ReasonExit}
	type script func(v *villain, id uint64)
	raw := func(b []byte) script { return func(v *villain, _ uint64) { _, _ = v.c.Write(b) } }
	one := func(k wire.Kind, n int64, body any) script {
		return func(v *villain, id uint64) { v.send(wire.Head{Kind: k, ID: id, N: n}, body) }
	}
	for name, s := range map[string]script{
		"length 2^32-1":           raw([]byte{255, 255, 255, 255, 1, 2, 3}),
		"length 0":                raw([]byte{0, 0, 0, 0}),
		"length over the limit":   raw(binary.BigEndian.AppendUint32(nil, wire.MaxUp+1)),
		"no head":                 raw([]byte{0, 0, 0, 1, 0xf6}),
		"head with three":         raw([]byte{0, 0, 0, 4, 0x83, 1, 1, 1}),
		"head is a map":           raw([]byte{0, 0, 0, 3, 0xa1, 1, 1}),
		"head indefinite":         raw([]byte{0, 0, 0, 6, 0x9f, 1, 1, 1, 0xf4, 0xff}),
		"head with a tag":         raw([]byte{0, 0, 0, 6, 0xc1, 0x84, 1, 1, 1, 0xf4}),
		"kind over 255":           raw([]byte{0, 0, 0, 7, 0x84, 0x19, 1, 1, 1, 1, 0xf4}),
		"unknown kind":            one(250, 0, nil),
		"daemon's kind":           one(wire.KindRun, 0, nil),
		"dial":                    one(90, 0, []byte("dial tcp 10.0.0.1:22")),
		"second welcome":          one(wire.KindWelcome, 0, wire.Welcome{}),
		"detached unasked":        one(wire.KindDetached, 0, nil),
		"foreign exchange":        func(v *villain, id uint64) { v.send(wire.Head{Kind: wire.KindOutput, ID: id + 1}, []byte("x")) },
		"exchange 0":              func(v *villain, id uint64) { v.send(wire.Head{Kind: wire.KindOutput}, []byte("x")) },
		"want without input":      one(wire.KindWant, 1, nil),
		"output with a gap":       one(wire.KindOutput, 1, []byte("x")),
		"output at -1":            one(wire.KindOutput, -1, []byte("x")),
		"output at 2^63-1":        one(wire.KindOutput, math.MaxInt64, []byte("x")),
		"output without a byte":   one(wire.KindOutput, 0, nil),
		"stderr of one stream":    func(v *villain, id uint64) { v.send(wire.Head{Kind: wire.KindOutput, ID: id, Flag: true}, []byte("x")) },
		"metadata not CBOR":       one(wire.KindMetadata, 0, []byte{0xff}),
		"metadata not a map":      one(wire.KindMetadata, 0, []byte{0x01}),
		"metadata nested":         one(wire.KindMetadata, 0, append([]byte{0xa1, 0x61, 'a'}, nested(40)...)),
		"metadata doubled key":    one(wire.KindMetadata, 0, []byte{0xa2, 0x61, 'a', 1, 0x61, 'a', 2}),
		"metadata huge":           one(wire.KindMetadata, 0, map[string]any{"a": strings.Repeat("x", wire.MaxMetadata)}),
		"metadata over the limit": one(wire.KindMetadata, 0, map[string]any{"a": strings.Repeat("x", wire.MaxProgress)}),
		"metadata of many":        one(wire.KindMetadata, 0, map[string]any{"a": make([]int, 1025)}),
		"metadata too often": func(v *villain, id uint64) {
			for range 2*updateBurst + 1 {
				v.send(wire.Head{Kind: wire.KindMetadata, ID: id}, map[string]any{})
			}
		},
		"metadata claims 2^60":    one(wire.KindMetadata, 0, []byte{0xbb, 0x10, 0, 0, 0, 0, 0, 0, 0}),
		"offer of nothing":        one(wire.KindOffer, 0, nil),
		"offer of a small result": one(wire.KindOffer, wire.MaxInline, nil),
		"offer of too much":       one(wire.KindOffer, wire.MaxBody+1, nil),
		"offer of 2^63-1":         one(wire.KindOffer, math.MaxInt64, nil),
		"chunk without offer":     one(wire.KindChunk, 0, []byte("x")),
		"chunk before the grant": func(v *villain, id uint64) {
			v.send(wire.Head{Kind: wire.KindOffer, ID: id, N: wire.MaxBody}, nil)
			v.send(wire.Head{Kind: wire.KindOffer, ID: id, N: wire.MaxBody}, nil)
		},
		"chunk past the offer": func(v *villain, id uint64) {
			v.send(wire.Head{Kind: wire.KindOffer, ID: id, N: wire.MaxInline + 1}, nil)
			v.receive() // the grant
			v.send(wire.Head{Kind: wire.KindChunk, ID: id}, make([]byte, wire.MaxInline))
			v.send(wire.Head{Kind: wire.KindChunk, ID: id, N: wire.MaxInline}, make([]byte, 2))
		},
		"chunk with a gap": func(v *villain, id uint64) {
			v.send(wire.Head{Kind: wire.KindOffer, ID: id, N: wire.MaxInline + 1}, nil)
			v.receive()
			v.send(wire.Head{Kind: wire.KindChunk, ID: id, N: 1}, []byte("x"))
		},
		"output after the offer": func(v *villain, id uint64) {
			v.send(wire.Head{Kind: wire.KindOffer, ID: id, N: wire.MaxInline + 1}, nil)
			v.send(wire.Head{Kind: wire.KindOutput, ID: id}, []byte("x"))
		},
		"done before all chunks": func(v *villain, id uint64) {
			v.send(wire.Head{Kind: wire.KindOffer, ID: id, N: wire.MaxInline + 1}, nil)
			v.receive()
			v.send(wire.Head{Kind: wire.KindChunk, ID: id}, []byte("x"))
			v.send(wire.Head{Kind: wire.KindDone, ID: id}, wire.Done{})
		},
		"done with chunks and payload": func(v *villain, id uint64) {
			v.send(wire.Head{Kind: wire.KindOffer, ID: id, N: wire.MaxInline + 1}, nil)
			v.send(wire.Head{Kind: wire.KindDone, ID: id}, doneWith(run.Result{}, exit, 0))
		},
		"credit exceeded": func(v *villain, id uint64) {
			for at := int64(0); at <= 10*window; at += wire.MaxChunk {
				v.send(wire.Head{Kind: wire.KindOutput, ID: id, N: at}, make([]byte, wire.MaxChunk))
			}
		},
		"done not CBOR":            one(wire.KindDone, 0, []byte{0xff}),
		"done empty":               one(wire.KindDone, 0, nil),
		"done without a result":    one(wire.KindDone, 0, wire.Done{}),
		"done with both":           one(wire.KindDone, 0, wire.Done{Payload: []byte{0xa0}, Err: &run.Error{Code: run.CodeInternal}}),
		"done with trailing bytes": one(wire.KindDone, 0, []byte{0xa0, 0xa0}),
		"done with unknown field":  one(wire.KindDone, 0, []byte{0xa1, 0x18, 99, 1}),
		"done at another offset":   one(wire.KindDone, 0, doneWith(run.Result{}, exit, 5)),
		"done at offset 2^63-1":    one(wire.KindDone, 0, doneWith(run.Result{}, exit, math.MaxInt64)),
		"unknown reason":           one(wire.KindDone, 0, doneWith(run.Result{}, &run.Exit{Reason: "<script>"}, 0)),
		"reason lost":              one(wire.KindDone, 0, doneWith(run.Result{}, &run.Exit{Reason: run.ReasonLost}, 0)),
		"signal as label":          one(wire.KindDone, 0, doneWith(run.Result{}, &run.Exit{Reason: run.ReasonSignal, Signal: "SIG" + strings.Repeat("A", 1000)}, 0)),
		"unknown error code":       one(wire.KindDone, 0, wire.Done{Err: &run.Error{Code: "root"}}),
		"unknown refusal":          one(wire.KindDone, 0, wire.Done{Refused: 77}),
		"refusal with a result":    one(wire.KindDone, 0, wire.Done{Refused: wire.RefusedUnknown, Payload: []byte{0xa0}}),
		"result with huge metadata": one(wire.KindDone, 0, resultWithMetadata(append([]byte{0xa1, 0x61, 'a', 0x7a, 0, 1, 0, 0},
			make([]byte, 65536)...))),
		"result nested":        one(wire.KindDone, 0, resultWithMetadata(append([]byte{0xa1, 0x61, 'a'}, nested(1000)...))),
		"result claims 2^32-1": one(wire.KindDone, 0, []byte{0xa1, 0x05, 0xa1, 0x02, 0x7a, 255, 255, 255, 255}),
		"attachments 2^32-1":   one(wire.KindDone, 0, []byte{0xa1, 0x05, 0xa1, 0x05, 0x9a, 255, 255, 255, 255}),
	} {
		t.Run(name, func(t *testing.T) {
			c, v := newVillain(t)
			go func() {
				h := v.receive()
				s(v, h.ID)
			}()
			o, err := c.Run(t.Context(), bashCall("c", "true"), stuckSink{c})
			if !errors.Is(err, ErrViolation) || o != nil {
				t.Errorf("run: %+v, %v; want a violation", o, err)
			}
			select {
			case <-c.Done():
			case <-time.After(20 * time.Second):
				t.Fatal("the connection lives on")
			}
			if !errors.Is(c.Err(), ErrViolation) {
				t.Errorf("connection: %v", c.Err())
			}
			if err := c.Ping(t.Context()); !errors.Is(err, ErrViolation) {
				t.Errorf("ping: %v", err)
			}
		})
	}
}

// stuckSink gives no credit back for what it has taken.
type stuckSink struct{ c *Conn }

func (s stuckSink) Output(int64, bool, []byte) error { <-s.c.Done(); return nil }
func (stuckSink) Metadata(map[string]any)            {}

// A second final, and anything for an exchange that is over.
func TestHostileAfterTheEnd(t *testing.T) {
	for name, k := range map[string]wire.Kind{"done": wire.KindDone, "output": wire.KindOutput, "detached": wire.KindDetached, "chunk": wire.KindChunk} {
		c, v := newVillain(t)
		go func() {
			h := v.receive()
			v.send(wire.Head{Kind: wire.KindDone, ID: h.ID}, doneWith(run.Result{Title: "ok"}, nil, 0))
			v.send(wire.Head{Kind: k, ID: h.ID}, []byte("x"))
		}()
		o, err := c.Run(t.Context(), bashCall("c", "true"), &sink{})
		if err == nil && o.Result.Title != "ok" {
			t.Errorf("%s: %+v", name, o)
		}
		<-c.Done()
		if !errors.Is(c.Err(), ErrViolation) {
			t.Errorf("%s: %v", name, c.Err())
		}
	}
}

func TestHostileAnswersOfOtherKinds(t *testing.T) {
	ask := map[string]func(c *Conn) error{
		"ping": func(c *Conn) error { return c.Ping(context.Background()) },
		"prepare": func(c *Conn) error {
			_, err := c.Prepare(context.Background(), Request{CallID: "c", Tool: "t", Input: json.RawMessage("{}")})
			return err
		},
	}
	for _, tc := range []struct {
		ask  string
		kind wire.Kind
		n    int64
		body any
	}{
		{"ping", wire.KindOutput, 0, []byte("x")},
		{"ping", wire.KindMetadata, 0, map[string]any{}},
		{"ping", wire.KindOffer, wire.MaxBody, nil},
		{"ping", wire.KindDone, 0, wire.Done{Payload: []byte{0xa0}}},
		{"ping", wire.KindDone, 0, wire.Done{Refused: wire.RefusedUnknown}},
		{"prepare", wire.KindOutput, 0, []byte("x")},
		{"prepare", wire.KindMetadata, 0, map[string]any{}},
		{"prepare", wire.KindDone, 0, wire.Done{}},
		{"prepare", wire.KindDone, 0, wire.Done{Refused: wire.RefusedDuplicate}},
		{"prepare", wire.KindDone, 0, payloadDone(run.Prepared{State: []byte("{")})},
		{"prepare", wire.KindDone, 0, payloadDone(run.Prepared{Result: &run.Result{Encoded: []byte{0x01}}})},
	} {
		c, v := newVillain(t)
		go func() {
			h := v.receive()
			v.send(wire.Head{Kind: tc.kind, ID: h.ID, N: tc.n}, tc.body)
		}()
		if err := ask[tc.ask](c); !errors.Is(err, ErrViolation) {
			t.Errorf("%s answered by kind %d %v: %v", tc.ask, tc.kind, tc.body, err)
		}
	}
}

func payloadDone(v any) wire.Done {
	b, _ := wire.Marshal(v)
	return wire.Done{Payload: b}
}

// Lies within the protocol are clamped, and text is made valid.
func TestHostileValues(t *testing.T) {
	c, v := newVillain(t)
	go func() {
		h := v.receive()
		meta, _ := wire.Marshal(map[string]any{"a\xff": "b\xff\x00\x1b]52;", "nan": math.NaN(), "bytes": []byte{1}, "big": uint64(1 << 62)})
		v.send(wire.Head{Kind: wire.KindMetadata, ID: h.ID}, meta)
		v.send(wire.Head{Kind: wire.KindDone, ID: h.ID}, doneWith(run.Result{Title: "\xff", Output: "\xfe\x00", Encoded: meta}, &run.Exit{
			Code: math.MaxInt, Signal: "", Reason: run.ReasonExit, DurationMillis: -5, CPUMillis: math.MaxInt64,
			MaxMemoryBytes: math.MaxInt64, IOBytes: -1, BackgroundKilled: -3,
		}, 0))
	}()
	s := &sink{}
	o, err := c.Run(t.Context(), bashCall("c", "true"), s)
	if err != nil {
		t.Fatal(err)
	}
	want := run.Exit{Code: -1, Reason: run.ReasonExit, CPUMillis: maxMillis, MaxMemoryBytes: 1 << 50}
	if !reflect.DeepEqual(*o.Exit, want) {
		t.Errorf("exit %+v, want %+v", *o.Exit, want)
	}
	if o.Result.Title != "\uFFFD" || o.Result.Output != "\uFFFD\x00" {
		t.Errorf("result %+v", o.Result)
	}
	if _, err := json.Marshal(o.Result); err != nil {
		t.Error(err)
	}
	if _, err := json.Marshal(s.meta); err != nil || len(s.meta) != 1 || s.meta[0]["a\uFFFD"] != "b\uFFFD\x00\x1b]52;" {
		t.Errorf("%v %v", err, s.meta)
	}
}

// An agent that sends the beginning of a frame and then little or nothing is
// given up, without a buffer for what it promised.
func TestHostileSlowFrame(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a deadline")
	}
	c, v := newVillain(t)
	go func() {
		b := wire.Frame(wire.Head{Kind: wire.KindDone, ID: 1}, make([]byte, 1000))
		for _, x := range b {
			if _, err := v.c.Write([]byte{x}); err != nil {
				return
			}
			time.Sleep(500 * time.Millisecond)
		}
	}()
	select {
	case <-c.Done():
	case <-time.After(10 * wire.FrameTime):
		t.Fatal("the connection lives on")
	}
	if !errors.Is(c.Err(), ErrViolation) {
		t.Errorf("got %v", c.Err())
	}
}

// Truncated frames are a lost connection: the agent may just have died.
func TestTruncatedFrame(t *testing.T) {
	frame := wire.Frame(wire.Head{Kind: wire.KindDone, ID: 1}, []byte{0xa0})
	for n := range frame {
		c, v := newVillain(t)
		_, _ = v.c.Write(frame[:n])
		v.c.Close()
		<-c.Done()
		if !errors.Is(c.Err(), ErrLost) || errors.Is(c.Err(), ErrViolation) {
			t.Errorf("after %d bytes: %v", n, c.Err())
		}
	}
}

// A flood of tiny frames is slowed down, and memory stays flat.
func TestHostileFlood(t *testing.T) {
	c, v := newVillain(t)
	const frames = 100_000
	go func() {
		h := v.receive()
		go func() { // credits
			for v.receive().Kind != 0 {
			}
		}()
		var b []byte
		for i := range int64(frames) {
			b = append(b, wire.Frame(wire.Head{Kind: wire.KindOutput, ID: h.ID, N: i}, []byte("x"))...)
			if len(b) > 32<<10 || i == frames-1 {
				if _, err := v.c.Write(b); err != nil {
					return
				}
				b = b[:0]
			}
		}
		v.send(wire.Head{Kind: wire.KindDone, ID: h.ID}, doneWith(run.Result{}, nil, frames))
	}()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began := time.Now()
	var n int
	o, err := c.Run(t.Context(), bashCall("c", "true"), sinkFunc(func(_ int64, p []byte) error { n += len(p); return nil }))
	if err != nil || o.OutputEnd != frames || n != frames {
		t.Errorf("%v %+v %d", err, o, n)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if after.HeapAlloc > before.HeapAlloc+8<<20 {
		t.Errorf("heap %d to %d", before.HeapAlloc, after.HeapAlloc)
	}
	if least := frames/paceFrames*paceTime - paceTime; time.Since(began) < least {
		t.Errorf("%d frames in %v: not slowed to one in %v", frames, time.Since(began), paceTime/paceFrames)
	}
}

// Descriptors that an agent sends never arrive.
func TestHostileDescriptors(t *testing.T) {
	c, v := newVillain(t)
	count := func() int {
		e, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(e)
	}
	fds := make([]int, 253)
	for i := range fds {
		fds[i] = int(os.Stdin.Fd())
	}
	rights := unix.UnixRights(fds...)
	before := count()
	for range 100 {
		done := make(chan error, 1)
		go func() { done <- c.Ping(context.Background()) }()
		h := v.receive()
		frame := wire.Frame(wire.Head{Kind: wire.KindDone, ID: h.ID}, encoded(wire.Done{}))
		if _, _, err := v.c.WriteMsgUnix(frame, rights, nil); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if after := count(); after > before+2 {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// An agent that does not read keeps nobody waiting for good.
func TestHostileDeafAgent(t *testing.T) {
	a, b := testrig.Socketpair(t)
	go func() {
		in := wire.NewReader(b, wire.MaxDown)
		_, _ = in.Next()
		body, _ := wire.Marshal(wire.Welcome{})
		_, _ = b.Write(wire.Frame(wire.Head{Kind: wire.KindWelcome}, body))
	}()
	c, _, err := connect(t.Context(), a, Hello{Nonce: testNonce}, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	in, _ := json.Marshal(strings.Repeat("x", 8<<20))
	_, err = c.Run(t.Context(), Request{CallID: "c", Tool: "bash", Input: in}, &sink{})
	if !errors.Is(err, ErrLost) {
		t.Errorf("got %v", err)
	}
}

// A violation on one connection does nothing to another.
func TestViolationIsContained(t *testing.T) {
	good := newRig(t)
	done := make(chan error, 1)
	go func() {
		o, err := good.Run(t.Context(), bashCall("a", "sleep 0.3; echo ok"), &sink{})
		if err == nil && o.Exit.Code != 0 {
			err = fmt.Errorf("%+v", o.Exit)
		}
		done <- err
	}()
	for range 50 {
		c, v := newVillain(t)
		_, _ = v.c.Write([]byte{255, 255, 255, 255})
		<-c.Done()
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A detached exchange is still checked, and what comes for it is dropped.
func TestDetachedExchange(t *testing.T) {
	c, v := newVillain(t)
	ctx, cancel := context.WithCancel(t.Context())
	heads := make(chan wire.Head, 4)
	go func() {
		h := v.receive()
		cancel()
		heads <- v.receive() // detach
		v.send(wire.Head{Kind: wire.KindOutput, ID: h.ID}, []byte("late"))
		v.send(wire.Head{Kind: wire.KindMetadata, ID: h.ID}, map[string]any{})
		v.send(wire.Head{Kind: wire.KindDetached, ID: h.ID}, nil)
		h = v.receive()
		v.send(wire.Head{Kind: wire.KindDone, ID: h.ID}, encoded(wire.Done{}))
	}()
	if _, err := c.Run(ctx, bashCall("c", "true"), &sink{}); !errors.Is(err, context.Canceled) {
		t.Errorf("run: %v", err)
	}
	if h := <-heads; h.Kind != wire.KindDetach {
		t.Errorf("got kind %d, want detach", h.Kind)
	}
	if err := c.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
}

// What a detached exchange was granted before is all that may still come.
func TestDetachedChunksAreCounted(t *testing.T) {
	for name, late := range map[string]wire.Head{
		"not granted":    {Kind: wire.KindChunk},
		"past the offer": {Kind: wire.KindChunk, N: wire.MaxInline},
		"again":          {Kind: wire.KindChunk},
	} {
		t.Run(name, func(t *testing.T) {
			c, v := newVillain(t)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				h := v.receive()
				if name != "not granted" {
					v.send(wire.Head{Kind: wire.KindOffer, ID: h.ID, N: wire.MaxInline + 1}, nil)
					v.receive() // the grant
					v.send(wire.Head{Kind: wire.KindChunk, ID: h.ID}, make([]byte, wire.MaxInline))
				}
				cancel()
				v.receive() // detach
				late.ID = h.ID
				v.send(late, []byte("xx"))
			}()
			if _, err := c.Run(ctx, bashCall("c", "true"), &sink{}); err == nil {
				t.Error("run: no error")
			}
			<-c.Done()
			if err := c.Err(); !errors.Is(err, ErrViolation) || !strings.Contains(err.Error(), "chunk") {
				t.Errorf("connection: %v", err)
			}
		})
	}
}

// An agent that never ends what was detached would fill the daemon's memory.
func TestDetachedForEver(t *testing.T) {
	c, v := newVillain(t)
	c.mu.Lock()
	c.patience = 50 * time.Millisecond
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		v.receive()
		cancel()
		for v.receive().Kind != 0 {
		}
	}()
	if _, err := c.Run(ctx, bashCall("c", "true"), &sink{}); !errors.Is(err, context.Canceled) {
		t.Errorf("run: %v", err)
	}
	select {
	case <-c.Done():
	case <-time.After(30 * time.Second):
		t.Fatal("the connection lives on")
	}
	if err := c.Err(); !errors.Is(err, ErrLost) || errors.Is(err, ErrViolation) {
		t.Errorf("connection: %v", err)
	}
}

// Updates within the rate are none too many, however long a call takes.
func TestAllowance(t *testing.T) {
	a := rate.NewLimiter(updateRate, updateBurst)
	now := time.Now()
	for i := range 10 * updateBurst {
		now = now.Add(time.Second / updateRate)
		if !a.AllowN(now, 1) {
			t.Fatalf("update %d is refused", i)
		}
	}
	n := 0
	for a.AllowN(now, 1) {
		n++
	}
	if n < updateBurst-2 || n > updateBurst {
		t.Errorf("%d at once, want %d", n, updateBurst)
	}
	if a.AllowN(now.Add(2*time.Second), 1); !a.AllowN(now.Add(time.Minute), 1) {
		t.Error("nothing comes back")
	}
}

func TestBadWelcome(t *testing.T) {
	for name, b := range map[string][]byte{
		"not a welcome":   wire.Frame(wire.Head{Kind: wire.KindDone}, encoded(wire.Done{})),
		"no body":         wire.Frame(wire.Head{Kind: wire.KindWelcome}, nil),
		"nameless call":   wire.Frame(wire.Head{Kind: wire.KindWelcome}, encoded(wire.Welcome{Calls: []wire.CallState{{}}})),
		"same call twice": wire.Frame(wire.Head{Kind: wire.KindWelcome}, encoded(wire.Welcome{Calls: []wire.CallState{{ID: "a"}, {ID: "a"}}})),
		"negative base":   wire.Frame(wire.Head{Kind: wire.KindWelcome}, encoded(wire.Welcome{Calls: []wire.CallState{{ID: "a", Base: -1}}})),
		"end before base": wire.Frame(wire.Head{Kind: wire.KindWelcome}, encoded(wire.Welcome{Calls: []wire.CallState{{ID: "a", Base: 2, End: 1}}})),
		"bad frame":       {0, 0, 0, 0},
	} {
		a, b2 := testrig.Socketpair(t)
		go func() { _, _ = b2.Write(b); _, _ = io.Copy(io.Discard, b2) }()
		if _, _, err := Connect(t.Context(), a, Hello{Nonce: testNonce}); !errors.Is(err, ErrViolation) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func encoded(v any) []byte {
	b, err := wire.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// An agent of before is not told to hold a call: it would end the connection.
func TestHoldOfOlderAgent(t *testing.T) {
	c, v := newVillain(t)
	if err := c.Hold("a", time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := c.Abort("a", run.ReasonAborted); err != nil {
		t.Fatal(err)
	}
	if h := v.receive(); h.Kind != wire.KindAbort {
		t.Errorf("the agent got kind %d first, want the abort", h.Kind)
	}
}
