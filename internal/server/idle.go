package server

import (
	"container/list"
	"net"
	"net/http"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// idlers are the connections without a request, those that have had none for longest first. They
// are closed before any that is at work has to go without a descriptor. Its zero value is ready.
type idlers struct {
	mu   sync.Mutex                 // guards the fields below
	all  list.List                  // of net.Conn
	open map[net.Conn]*list.Element // all connections: where an idle one is in all, nil for one at work
}

// note is http.Server.ConnState. One that has not sent a request yet is idle.
func (i *idlers) note(c net.Conn, state http.ConnState) {
	i.mu.Lock()
	defer i.mu.Unlock()
	e, known := i.open[c]
	if e != nil {
		i.all.Remove(e)
	}
	switch state {
	case http.StateNew, http.StateIdle:
		if i.open == nil {
			i.open = map[net.Conn]*list.Element{}
		}
		if known || state == http.StateNew { // else room has closed it
			i.open[c] = i.all.PushBack(c)
		}
	case http.StateActive:
		if known {
			i.open[c] = nil
		}
	case http.StateClosed, http.StateHijacked:
		delete(i.open, c)
	}
}

// room closes idle connections until fewer than most are open, and reports whether there are.
func (i *idlers) room(most int) bool {
	i.mu.Lock()
	var old []net.Conn
	for len(i.open) >= most && i.all.Len() > 0 {
		c, _ := i.all.Remove(i.all.Front()).(net.Conn)
		delete(i.open, c)
		old = append(old, c)
	}
	ok := len(i.open) < most
	i.mu.Unlock()
	for _, c := range old { // its server is told
		_ = c.Close()
	}
	return ok
}

// connShare is the part of the process's descriptors that connections of clients take at most:
// the others are for sessions, records and the sandboxes that are being made.
// rootReserve is how many more root and the daemon's own user have, who must be able to look at a
// daemon whose users keep all of theirs at work.
const (
	connShare   = 2
	rootReserve = 16
)

// maxOpen is how many connections there may be of all users together when one of this uid comes.
func maxOpen(uid uint32) int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Cur > 1<<30 {
		return 1 << 30
	}
	most := int(limit.Cur) / connShare
	if uid == 0 || int(uid) == os.Geteuid() {
		most += rootReserve
	}
	return most
}
