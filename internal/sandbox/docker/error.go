package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"syscall"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	dockerclient "github.com/docker/docker/client"
)

// errNotFound: the Engine does not know the container or image.
var errNotFound = errors.New("there is none")

// errSlow is the cause of a request's end at its deadline.
type errSlow struct{ limit time.Duration }

func (e errSlow) Error() string { return fmt.Sprintf("it has not answered within %s", e.limit) }

// maxQuoted bounds what of the Engine's words goes into an error, in bytes.
const maxQuoted = 2 << 10

// explain says what went wrong with a request and what to do.
func (e *engine) explain(ctx context.Context, what string, err error) error {
	at := "the Docker Engine " + e.host + ": " + what
	var slow errSlow
	var long *http.MaxBytesError
	text := err.Error()
	switch {
	case cerrdefs.IsNotFound(err):
		return fmt.Errorf("%s: %w", at, errNotFound)
	case cerrdefs.IsConflict(err):
		return fmt.Errorf("%s: %w", at, quoted(err))
	case errors.As(err, &long):
		return fmt.Errorf("%s: its answer has more than %d MiB", at, long.Limit>>20)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: %w: run toold as root, or as one that may use its socket", at, quoted(err))
	case errors.As(context.Cause(ctx), &slow):
		return fmt.Errorf("%s: %w: look at its log and at the load of the machine", at, slow)
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", at, context.Cause(ctx))
	case IsRemote(e.host) && dockerclient.IsErrConnectionFailed(err): // what TLS or ssh says is worth reading
		return fmt.Errorf("%s: %w: is it running, and is DOCKER_HOST right?", at, quoted(err))
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), dockerclient.IsErrConnectionFailed(err):
		return fmt.Errorf("%s: it is not running, or listens elsewhere: start it (systemctl start docker), or set DOCKER_HOST", at)
	case errors.Is(err, syscall.ENOSPC), strings.Contains(text, "no space left on device"):
		return fmt.Errorf("%s: %w: its disk is full; see docker system df, docker system prune", at, quoted(err))
	case strings.Contains(text, "bind source path does not exist"):
		return fmt.Errorf("%s: %w: the Engine sees other files than this daemon; both must see the state and run directories of toold at the same place", at, quoted(err))
	case strings.Contains(text, "client version") && strings.Contains(text, "is too"):
		return fmt.Errorf("%s: %w: API %s is needed, which Engines have from 20.10 on", at, quoted(err), leastAPI)
	default:
		return fmt.Errorf("%s: %w", at, quoted(err))
	}
}

// shortError is an error whose text is cut.
type shortError struct{ err error }

func (s shortError) Error() string { return s.err.Error()[:maxQuoted] + "…" }
func (s shortError) Unwrap() error { return s.err }

func quoted(err error) error {
	if len(err.Error()) > maxQuoted {
		return shortError{err}
	}
	return err
}
