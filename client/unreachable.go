package client

import (
	"errors"
	"fmt"
	"io/fs"
)

// ErrDisconnected is a connection that broke before the answer was complete. The
// daemon may have acted on the request: a call that was made with a Key can be
// asked for again without a second run.
var ErrDisconnected = errors.New("the daemon closed the connection before it had answered")

// UnreachableError is a daemon that could not be connected to: nothing was sent.
type UnreachableError struct {
	Socket string // the path that was dialled
	Err    error  // why it did not work
}

// Error says where the daemon was looked for and what to do.
func (e *UnreachableError) Error() string {
	hint := `is it running? see "systemctl status toold"`
	if errors.Is(e.Err, fs.ErrPermission) {
		hint = "this user may not open the socket: ask for its group or run as an admin"
	}
	return fmt.Sprintf("toold cannot be reached at %s: %v (%s)", e.Socket, e.Err, hint)
}

// Unwrap gives the dialling error.
func (e *UnreachableError) Unwrap() error { return e.Err }
