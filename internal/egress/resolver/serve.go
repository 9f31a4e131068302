package resolver

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Queries a second that get an answer; who asks more gets SERVFAIL, and then has to wait.
const (
	perSecond = 500
	burst     = 1000
	// pause follows each answer over the rate, so that a flood takes no processor.
	pause = time.Millisecond
)

// Bounds of queries over TCP.
const (
	maxStreams = 16
	streamTime = 5 * time.Second // for each query
)

// Server answers the queries of one session.
type Server struct {
	Names *Names
	// Refused is told of each query that got SERVFAIL; it must not block. nil is told nothing.
	Refused func()

	once  sync.Once
	limit *rate.Limiter
}

func (s *Server) answer(query []byte) []byte {
	s.once.Do(func() { s.limit = rate.NewLimiter(perSecond, burst) })
	refuse := !s.limit.Allow()
	if refuse {
		time.Sleep(pause)
	}
	return Answer(query, refuse, func(name string) (netip.Addr, error) {
		a, err := s.Names.Address(name)
		if err != nil && s.Refused != nil {
			s.Refused()
		}
		return a, err
	})
}

// ServePackets answers over UDP until c is closed.
func (s *Server) ServePackets(c net.PacketConn) {
	buf := make([]byte, 1500)
	for {
		n, from, err := c.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(pause)
			continue
		}
		if answer := s.answer(buf[:n]); answer != nil {
			_, _ = c.WriteTo(answer, from)
		}
	}
}

// ServeStreams answers over TCP until l is closed, and waits for its connections. These end with
// ctx: a program that goes on asking would never end its own.
func (s *Server) ServeStreams(ctx context.Context, l net.Listener) {
	var wg sync.WaitGroup
	defer wg.Wait()
	open := make(chan struct{}, maxStreams)
	for {
		open <- struct{}{}
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			<-open
			time.Sleep(pause)
			continue
		}
		wg.Go(func() {
			defer func() { _ = c.Close(); <-open }()
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			s.serveStream(c)
		})
	}
}

// serveStream answers queries, each with its length before it.
func (s *Server) serveStream(c net.Conn) {
	for c.SetDeadline(time.Now().Add(streamTime)) == nil {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		query := make([]byte, min(binary.BigEndian.Uint16(size[:]), 1500))
		if int(binary.BigEndian.Uint16(size[:])) > len(query) {
			return
		}
		if _, err := io.ReadFull(c, query); err != nil {
			return
		}
		answer := s.answer(query)
		if answer == nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}
