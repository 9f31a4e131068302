package sandboxtest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"net"
	"runtime"
	"strings"
	"time"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
)

// Input ends at once unless the call has some, there is no terminal, the streams are kept apart where that
// is asked for, and bytes arrive as they are.
func testStdio(s *suite) {
	b := s.create(s.spec())
	b.want("cat; read x; echo end", "end")
	b.fails("exec </dev/tty", "")
	given := b.request("head -c 3; wc -c; cat /dev/stdin")
	given.Tool, given.Input = "bash", []byte(`{"command":"head -c 3; wc -c; cat /dev/stdin","stdin":"abc`+strings.Repeat("x", run.MaxStdin-3)+`"}`)
	if r := b.start(given, nil).result(s); r.Code != 0 || strings.Join(strings.Fields(r.Output), " ") != fmt.Sprintf("abc%d", run.MaxStdin-3) {
		s.Errorf("of its input a command sees %q", r.Output)
	}
	b.want("cat; echo end", "end")
	if got := b.run(`printf 'a\000b\377\033[31m\r\n'`).Output; got != "a\x00b\xff\x1b[31m\r\n" {
		s.Errorf("bytes are %q", got)
	}
	b.want("env | cut -d= -f1 | grep -vxE 'PWD|SHLVL|_|OLDPWD' | sort | tr '\\n' ' '", "HOME LANG PATH")
	b.want("for f in /proc/self/fd/*; do echo ${f##*/}; done | sort -n | head -3 | tr '\\n' ' '", "0 1 2")
	if r := b.run("kill -9 $$"); r.Code != -1 {
		s.Errorf("a shell that killed itself ended with %d", r.Code)
	}
	if r := b.run("exit 37"); r.Code != 37 {
		s.Errorf("exit 37 gives %d", r.Code)
	}
	r := b.request("echo out; echo err >&2; echo out; echo err >&2")
	r.Split = true
	var streams [2]strings.Builder
	x := b.start(r, &sink{each: func(_ int64, stderr bool, p []byte) {
		if stderr {
			streams[1].Write(p)
		} else {
			streams[0].Write(p)
		}
	}})
	x.result(s)
	if streams[0].String() != "out\nout\n" || streams[1].String() != "err\nerr\n" {
		s.Errorf("streams are %q and %q", streams[0].String(), streams[1].String())
	}
}

// largeOutput is what one call prints, in bytes.
const largeOutput = 100 << 20

// A hundred MiB come whole, in order, and are never held as a whole.
func testLargeOutput(s *suite) {
	b := s.create(s.spec())
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	sum, peak, blocks := sha256.New(), uint64(0), 0
	out := &sink{each: func(_ int64, _ bool, p []byte) {
		sum.Write(p)
		if blocks++; blocks%64 == 0 {
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			peak = max(peak, now.HeapInuse)
		}
	}}
	x := b.start(b.request(fmt.Sprintf("yes 0123456789abcdef | head -c %d", largeOutput)), out)
	if r := x.result(s); r.Code != 0 {
		s.Fatalf("exit code %d", r.Code)
	}
	want := sha256.New()
	repeat(want, "0123456789abcdef\n", largeOutput)
	if out.end != largeOutput || string(sum.Sum(nil)) != string(want.Sum(nil)) || len(out.breaches) > 0 {
		s.Errorf("%d bytes of %d have arrived, or others; %v", out.end, largeOutput, out.breaches)
	}
	if grown := int64(peak) - int64(before.HeapInuse); grown > 32<<20 {
		s.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

// repeat writes line until n bytes are written.
func repeat(h hash.Hash, line string, n int) {
	block := strings.Repeat(line, 1<<12)
	for n > 0 {
		k := min(n, len(block))
		_, _ = io.WriteString(h, block[:k]) // a hash takes everything
		n -= k
	}
}

// A sink that takes nothing stops its own call and no other, and nothing is lost
// when it goes on. Connections that say nothing hold up nobody.
func testStall(s *suite) {
	b := s.create(s.spec())
	go1 := make(chan struct{})
	slow := b.start(b.request("yes stalled | head -c 20000000; echo >&2 end"), &sink{hold: go1})
	for i := range 5 {
		b.want(fmt.Sprintf("echo other %d", i), fmt.Sprintf("other %d", i))
	}
	select {
	case <-slow.done:
		s.Error("20 MB went to nobody")
	default:
	}
	for _, c := range silent(b) {
		defer c.Close()
	}
	b.want("echo beside silent connections", "beside silent connections")
	close(go1)
	if r := slow.result(s); r.Code != 0 || len(r.Output) != 20000000+len("end\n") || len(slow.sink.breaches) > 0 {
		s.Errorf("code %d, %d bytes, %v", r.Code, len(r.Output), slow.sink.breaches)
	}
}

// silent opens connections that never say anything. A driver whose agent dials
// may have none to give while one is in use.
func silent(b *box) (list []net.Conn) {
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		c, err := b.Dial(ctx)
		cancel()
		if err == nil {
			list = append(list, c)
		}
	}
	return list
}

// A call that is aborted ends with all that it has started.
func testAbort(s *suite) {
	b := s.create(s.spec())
	x := b.start(b.request("trap '' TERM; (setsid sleep 1000 &) ; echo begun; sleep 1000; sleep 1000"), nil)
	testrig.Eventually(s, "the call has begun", func() bool { return x.sink.taken() > 0 })
	testrig.Must(s, b.conn.Abort(x.id, run.ReasonAborted))
	<-x.done
	if x.err != nil || x.out.Exit == nil || x.out.Exit.Reason != run.ReasonAborted {
		s.Errorf("outcome %+v, %v", x.out, x.err)
	}
	b.want("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c '[s]leep 1000' || true", "0")
}

// The daemon goes and comes back in the middle of a call, three times: its lines
// are complete, in order, and there once.
func testRestart(s *suite) {
	b := s.create(s.spec())
	all := &sink{}
	// It goes on until it is told to end: how long a restart takes, nobody knows.
	x := b.start(b.request("i=0; until [ -e /tmp/end ]; do i=$((i+1)); echo line $i; sleep 0.01; done; echo end $i"), all)
	for round := range 3 {
		seen := all.taken()
		testrig.Eventually(s, "more lines have come", func() bool { return all.taken() > seen+200 })
		b.letGo()
		<-x.done
		if x.err == nil {
			s.Fatalf("round %d: the call has ended: %+v", round, x.out)
		}
		b = b.adopt(s.Reopen())
		x = b.resume(x.id, all)
	}
	b.out(": >/tmp/end")
	r := x.result(s)
	var want strings.Builder
	lines := strings.Count(r.Output, "\n") - 1
	for i := range lines {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	fmt.Fprintf(&want, "end %d\n", lines) // or the last ones could be missing
	if r.Code != 0 || r.Output != want.String() || len(all.breaches) > 0 {
		s.Errorf("code %d, output of %d bytes, want %d; %v", r.Code, len(r.Output), want.Len(), all.breaches)
	}
	testrig.Must(s, b.conn.Forget(x.id))
	b.want("echo next", "next")
}

// resume takes a call up where its sink is.
func (b *box) resume(id string, k *sink) *running {
	b.s.Helper()
	k.conn = b.conn
	from := k.taken()
	testrig.Must(b.s, b.conn.Ack(id, from))
	return b.follow(id, k, func(ctx context.Context, c *agent.Conn) (*agent.Outcome, error) { return c.Resume(ctx, id, from, k) })
}

var _ agent.Sink = (*sink)(nil)
