package server

import (
	"container/list"
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/descriptor"
)

// idlers counts the connections of each user, and knows those without a request. They are closed
// before any that is at work has to go without a descriptor: of the user with the most
// connections first, those that have had no request for longest. Its zero value is ready.
type idlers struct {
	mu    sync.Mutex                 // guards the fields below
	open  map[net.Conn]*list.Element // all connections: where an idle one is in its user's idle, nil for one at work
	users map[int64]*connUser        // who has any, by quotaKey
}

// connUser is a user with connections.
type connUser struct {
	open int       // connections, the idle ones among them
	idle list.List // of net.Conn, idle for longest first
}

// strangers is the quota key that all peers share who are nobody to the daemon:
// a container that could connect has tens of thousands of uids.
const strangers = -1

// ownerOf is the quota key of c's user.
func ownerOf(c net.Conn) int64 {
	if p, ok := c.(interface{ owner() int64 }); ok {
		return p.owner()
	}
	return strangers
}

// note is http.Server.ConnState. One that has not sent a request yet is idle.
func (i *idlers) note(c net.Conn, state http.ConnState) {
	i.mu.Lock()
	defer i.mu.Unlock()
	e, known := i.open[c]
	u := i.users[ownerOf(c)]
	switch {
	case known:
	case state != http.StateNew:
		return // it has been closed here
	case i.open == nil:
		i.open, i.users = map[net.Conn]*list.Element{}, map[int64]*connUser{}
	}
	if u == nil {
		u = &connUser{}
		i.users[ownerOf(c)] = u
	}
	if !known {
		u.open++
	}
	if e != nil {
		u.idle.Remove(e)
	}
	switch state {
	case http.StateNew, http.StateIdle:
		i.open[c] = u.idle.PushBack(c)
	case http.StateActive:
		i.open[c] = nil
	case http.StateClosed, http.StateHijacked:
		i.forget(c, u)
	}
}

// forget drops c of u. i.mu is held.
func (i *idlers) forget(c net.Conn, u *connUser) {
	delete(i.open, c)
	if u.open--; u.open == 0 {
		delete(i.users, ownerOf(c))
	}
}

// drop forgets the connection that u has left idle for longest and returns it, for its caller to
// close; nil for a user without one. i.mu is held.
func (i *idlers) drop(u *connUser) net.Conn {
	if u == nil || u.idle.Len() == 0 {
		return nil
	}
	c, _ := u.idle.Remove(u.idle.Front()).(net.Conn)
	i.forget(c, u)
	return c
}

// busiest is who has the most connections of those that have idle ones; nil for nobody. i.mu is
// held.
func (i *idlers) busiest() (most *connUser) {
	for _, u := range i.users {
		if u.idle.Len() > 0 && (most == nil || u.open > most.open) {
			most = u
		}
	}
	return most
}

// room closes idle connections until there may be one more of the user key, of whom there may be
// mine, and of all, of whom there may be most.
func (i *idlers) room(key int64, mine, most int) *client.Error {
	i.mu.Lock()
	var old []net.Conn
	err := func() *client.Error {
		for u := i.users[key]; u != nil && u.open >= mine; {
			c := i.drop(u)
			if c == nil {
				return errTooMany
			}
			old = append(old, c)
		}
		for len(i.open) >= most {
			c := i.drop(i.busiest())
			if c == nil {
				return errAllBusy
			}
			old = append(old, c)
		}
		return nil
	}()
	i.mu.Unlock()
	closeAll(old)
	return err
}

// evict closes up to n idle connections, and reports whether there was any.
func (i *idlers) evict(n int) bool {
	i.mu.Lock()
	var old []net.Conn
	for len(old) < n {
		c := i.drop(i.busiest())
		if c == nil {
			break
		}
		old = append(old, c)
	}
	i.mu.Unlock()
	closeAll(old)
	return len(old) > 0
}

// closeAll closes connections. Their descriptors are free when it returns, and their servers are
// told.
func closeAll(conns []net.Conn) {
	for _, c := range conns {
		_ = c.Close()
	}
}

// errTooMany is what a connection above the cap of its user gets, and errAllBusy one for which
// there is no descriptor to spare. Nothing of them depends on the request, which is not read.
var (
	errTooMany = &client.Error{
		Code: client.CodeOverloaded, Message: "this user has too many connections open", Hint: "close idle connections or reuse them",
	}
	errAllBusy = &client.Error{
		Code: client.CodeOverloaded, Message: "all connections that toold has descriptors for are at work",
		Hint: "try again in a moment; an admin can raise the limit of open files of toold (LimitNOFILE)",
	}
)

// reserve is how many more connections root and the daemon's own user have than others, who must
// be able to look at a daemon whose users keep all of theirs at work; and how many idle ones are
// closed at once when the process has no descriptor left, so that some are free for its files.
const reserve = 16

// bounds is how many connections there may be of the user with this uid, and of all together,
// when one of that user comes: of all as many as a share of the process's descriptors, of one
// half of these. Root and the daemon's own user are bounded with all alone.
func bounds(uid uint32) (mine, most int) {
	most = descriptor.Share()
	if uid == 0 || int(uid) == os.Geteuid() {
		return most + reserve, most + reserve
	}
	return max(1, most/2), most
}
