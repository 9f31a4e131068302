package main

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/toold/toold/internal/egress/netns"
)

// floodEnv makes this program one that opens connections without end to the address in it.
const floodEnv = "TOOLD_BENCH_FLOOD"

// floodWidth is how many connections a flood opens side by side.
const floodWidth = 32

// flood opens connections until its standard input ends: half of it resets them at once, the
// other half asks for a byte, so that each has to be carried to the far side.
func flood(addr string) {
	for i := range floodWidth {
		go func() {
			for {
				if i%2 == 0 {
					_ = ask(addr, 1)
				} else if c, err := net.DialTimeout("tcp4", addr, 10*time.Second); err == nil {
					_ = c.(*net.TCPConn).SetLinger(0)
					_ = c.Close()
				}
			}
		}()
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// startFlood floods an address from the neighbour's namespace, as a program of its own. stop ends it.
func (w *way) startFlood(addr string) (stop func() error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), floodEnv+"="+addr)
	in := get(cmd.StdinPipe())
	get(netns.In(w.other, func() (struct{}, error) { return struct{}{}, cmd.Start() }))
	return func() error { return errors.Join(in.Close(), cmd.Wait()) }
}

// sink is a listener of the neighbour's own that takes as many connections a second as the
// daemon does by default, and answers each with a byte: a flood of it is slowed down as one of
// the way out is, and the daemon has nothing to do with it.
func (w *way) sink(port uint16) (addr string, stop func()) {
	l := listenIn(w.other, port)
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte{0})
			_ = c.Close()
			time.Sleep(time.Second / 200)
		}
	})
	addr = netip.AddrPortFrom(w.host, port).String()
	return addr, func() { _ = l.Close(); work.Wait() }
}

// flooded is a first byte in one session: alone, while a program of another floods a listener of
// its own, and while that program floods the way out. The three are taken in turns, and each
// flood begins anew each time, with what a session may open at once.
func (w *way) flooded(l *lab) []row {
	sink, stop := w.sink(uint16(w.far.Addr().(*net.TCPAddr).Port) + 2)
	defer stop()
	beside := []struct{ name, flood string }{{"alone", ""}, {"own", sink}, {"way", w.way}}
	took := map[string][]float64{}
	for range l.n(20) {
		for _, b := range beside {
			took[b.name] = append(took[b.name], w.besideFlood(b.flood)...)
		}
	}
	r := row{Group: "network", Name: "first byte beside a session that floods", Manner: "runs", Unit: "µs", stats: summarise(took["way"]), Target: "p99 ≤ 1.25 ×"}
	return []row{
		r.against("beside the same flood of a listener of its own", summarise(took["own"])),
		r.against("alone", summarise(took["alone"])),
	}
}

// besideFlood takes a hundred first bytes, in microseconds: not quite a hundred a second, half of what a session
// may open by default. Faster ones would wait for the asking session's own bound, flood or none.
func (w *way) besideFlood(addr string) []float64 {
	if addr != "" {
		stop := w.startFlood(addr)
		defer func() { _ = stop() }()
	}
	return get(netns.In(w.ns, func() (all []float64, err error) {
		for range 100 {
			d, err := timed(func() error { return ask(w.way, 1) })()
			if err != nil {
				return nil, err
			}
			all = append(all, float64(d.Nanoseconds())/1e3)
			time.Sleep(10 * time.Millisecond)
		}
		return all, nil
	}))
}
