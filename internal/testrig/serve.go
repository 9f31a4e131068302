package testrig

import (
	"net"
	"sync"
)

// Serve serves each connection of a listener on a goroutine of its own, and closes it when serve
// returns. stop closes the listener, and waits for those that are being served.
func Serve(l net.Listener, serve func(net.Conn)) (stop func()) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { defer c.Close(); serve(c) })
		}
	})
	return func() { _ = l.Close(); wg.Wait() }
}
