package call

import "io"

// Pipe is what a call reads and writes between its tool and the client that made it. None
// of it is kept; a side that is slow has the other wait.
type Pipe struct {
	// Body is what the tool reads, nil for nothing. It is closed when the call has read of
	// it and ends; a Read that waits must return then.
	Body io.ReadCloser
	// To gets what the tool writes, nil where it writes nothing. An error aborts the call.
	To io.Writer
	// Most is how many bytes the tool may write, after which the call is ended.
	Most int64
	// ID is that of the call. It is set before anything is read or written.
	ID string
}
