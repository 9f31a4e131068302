package egress

import (
	"context"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/toold/toold/internal/endpoint"
)

// askedGate denies all, and says what it was asked about.
type askedGate struct{ asked chan Request }

func (g askedGate) Connect(_ context.Context, r Request) Verdict {
	select {
	case g.asked <- r:
	default:
	}
	return Verdict{Rule: "test:1"}
}
func (g askedGate) HTTP(ctx context.Context, r Request) Verdict { return g.Connect(ctx, r) }
func (askedGate) Opens(Request) (Verdict, Opening)              { return Verdict{}, Refused }
func (askedGate) Reads(Request) Reading                         { return Reading{} }
func (askedGate) Revision() uint64                              { return 0 }
func (askedGate) Done(Record)                                   {}

// FuzzProxy: whatever a program sends to the proxy, it ends, and what is judged is in its one
// spelling.
func FuzzProxy(f *testing.F) {
	f.Add([]byte("GET http://example.com/a?b HTTP/1.1\r\nHost: example.com\r\n\r\n"))
	f.Add([]byte("CONNECT example.com:443 HTTP/1.1\r\n\r\n\x16\x03\x01"))
	f.Add([]byte("POST http://0x7f.1:8080/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"))
	gate := askedGate{make(chan Request, 64)}
	n, err := Open(context.Background(), Config{Session: "fuzz", Gate: gate, Log: slog.New(slog.DiscardHandler), Limits: Limits{PerSecond: 1 << 20}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = n.Close() })
	f.Fuzz(func(t *testing.T, in []byte) {
		near, far := net.Pipe()
		n.admit(far, n.proxied)
		_ = near.SetDeadline(time.Now().Add(time.Minute))
		go func() { _, _ = near.Write(in); time.Sleep(time.Millisecond); _ = near.Close() }()
		_, _ = io.Copy(io.Discard, near)
		for {
			select {
			case r := <-gate.asked:
				if h, err := endpoint.ParseHost(r.Host); err != nil || h.String() != r.Host || r.Port == 0 {
					t.Errorf("judged %+v, %v", r, err)
				}
			default:
				return
			}
		}
	})
}
