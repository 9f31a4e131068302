package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/versions"
	dockerclient "github.com/docker/docker/client"

	cerrdefs "github.com/containerd/errdefs"

	"github.com/toold/toold/internal/sandbox/far"
)

// leastAPI is the oldest version of the API that has all that a sandbox needs: that
// of Engine 20.10.
const leastAPI = "1.41"

// Times that the Engine has for an answer. Making and starting a container takes
// less than a second on an idle machine, and many times that on one whose disk is
// busy.
const (
	askTime  = 15 * time.Second
	workTime = 45 * time.Second
)

// maxAnswer bounds an answer of the Engine in bytes. What it says of a container is
// some kilobytes; lists grow with their number.
const maxAnswer = 32 << 20

// engine is what the driver asks of a Docker Engine. Each request has its deadline,
// each answer its bound, each error says what to do.
type engine struct {
	host string
	c    *dockerclient.Client
	http *http.Transport
}

// IsRemote says whether an Engine's address is not that of a socket on this host.
func IsRemote(host string) bool { return host != "" && !strings.HasPrefix(host, "unix://") }

// newEngine makes a client for the Engine at host. It does not connect.
func newEngine(host string) (*engine, error) {
	path, ok := strings.CutPrefix(host, "unix://")
	if !ok || !filepath.IsAbs(path) {
		return nil, fmt.Errorf("the Docker Engine %q: the driver needs one on this host, by unix:// and the absolute path of its socket; set or unset DOCKER_HOST", host)
	}
	return dialled(host, host, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	})
}

// dialled makes a client of connections that dial makes; at is the address as the client
// wants it.
func dialled(host, at string, dial far.DialFunc) (*engine, error) {
	tr := &http.Transport{
		DisableCompression: true, MaxIdleConns: 16, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	}
	c, err := dockerclient.NewClientWithOpts(
		dockerclient.WithHost(at), dockerclient.WithScheme("http"), // what the connection is in, dial knows
		dockerclient.WithHTTPClient(&http.Client{Transport: bounded{tr}, CheckRedirect: dockerclient.CheckRedirect}),
		dockerclient.WithAPIVersionNegotiation(), dockerclient.WithUserAgent("toold"),
	)
	if err != nil {
		return nil, fmt.Errorf("the Docker Engine %q: %w", host, err)
	}
	return &engine{host: host, c: c, http: tr}, nil
}

func (e *engine) close() error {
	e.http.CloseIdleConnections()
	return e.c.Close()
}

// bounded is a transport whose answers end with an error beyond maxAnswer.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	// Events come one by one for as long as they are listened to.
	// Archives have a bound of their own.
	if !strings.HasSuffix(r.URL.Path, "/events") && !strings.HasSuffix(r.URL.Path, "/archive") {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	}
	return resp, nil
}

// engineInfo is what is asked of an Engine as a whole.
type engineInfo = system.Info

// ask runs one request under a deadline of its own.
func ask[T any](ctx context.Context, e *engine, limit time.Duration, what string, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errSlow{limit})
	defer cancel()
	v, err := f(ctx)
	if err != nil {
		return v, e.explain(ctx, what, err)
	}
	return v, nil
}

// do is ask without an answer.
func (e *engine) do(ctx context.Context, limit time.Duration, what string, f func(context.Context) error) error {
	_, err := ask(ctx, e, limit, what, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

// version makes sure that the Engine is there and speaks our version of the API.
func (e *engine) version(ctx context.Context) (string, error) {
	v, err := ask(ctx, e, askTime, "ask for its version", e.c.ServerVersion)
	if err != nil {
		return "", err
	}
	if v.APIVersion == "" || versions.LessThan(v.APIVersion, leastAPI) {
		return "", fmt.Errorf("the Docker Engine %s: version %q has API %q, and %s is needed: upgrade it to 20.10 or newer", e.host, v.Version, v.APIVersion, leastAPI)
	}
	return v.Version + ", API " + v.APIVersion, nil
}

func (e *engine) info(ctx context.Context) (*engineInfo, error) {
	if _, err := e.version(ctx); err != nil {
		return nil, err
	}
	info, err := ask(ctx, e, askTime, "ask about it", e.c.Info)
	if err != nil {
		return nil, err
	}
	if info.OSType != "linux" {
		return nil, fmt.Errorf("the Docker Engine %s: it is for %q, and sandboxes need linux", e.host, info.OSType)
	}
	return &info, nil
}

// isRef says whether a text can name an image. The client makes a path of it, in which
// dots would lead to other things than images.
func isRef(ref string) bool { return path.Clean("/"+ref) == "/"+ref }

func (e *engine) image(ctx context.Context, ref string) (*image.InspectResponse, error) {
	if !isRef(ref) {
		return nil, fmt.Errorf("image %q: %w", ref, errNotFound)
	}
	img, err := ask(ctx, e, askTime, "look for image "+ref, func(ctx context.Context) (image.InspectResponse, error) {
		return e.c.ImageInspect(ctx, ref)
	})
	if err == nil && (img.ID == "" || img.Config == nil) {
		err = fmt.Errorf("the Docker Engine %s: it says nothing about image %s", e.host, ref)
	}
	return &img, err
}

func (e *engine) create(ctx context.Context, name string, c *container.Config, h *container.HostConfig) (string, error) {
	r, err := ask(ctx, e, workTime, "make container "+name, func(ctx context.Context) (container.CreateResponse, error) {
		return e.c.ContainerCreate(ctx, c, h, nil, nil, name)
	})
	if err == nil && !containerID.MatchString(r.ID) {
		err = fmt.Errorf("the Docker Engine %s: %q is no container's id", e.host, r.ID)
	}
	return r.ID, err
}

func (e *engine) start(ctx context.Context, id string) error {
	return e.do(ctx, workTime, "start container "+id, func(ctx context.Context) error {
		return e.c.ContainerStart(ctx, id, container.StartOptions{})
	})
}

// inspect gives a container's state; the error is errNotFound when there is none.
func (e *engine) inspect(ctx context.Context, id string) (*container.InspectResponse, error) {
	r, err := ask(ctx, e, askTime, "look at container "+id, func(ctx context.Context) (container.InspectResponse, error) {
		return e.c.ContainerInspect(ctx, id)
	})
	if err == nil && (r.ContainerJSONBase == nil || r.State == nil || r.Config == nil) {
		err = fmt.Errorf("the Docker Engine %s: it says nothing about container %s", e.host, id)
	}
	return &r, err
}

// remove kills and removes a container. One that is not there is no error, and one
// that somebody else is removing just now is waited for.
func (e *engine) remove(ctx context.Context, id string) error {
	return e.removeWithin(ctx, id, workTime)
}

func (e *engine) removeWithin(ctx context.Context, id string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var conflict error
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := e.removeOnce(ctx, id)
		switch {
		case cerrdefs.IsConflict(err):
			conflict = err
		case err != nil && ctx.Err() != nil:
			return errors.Join(conflict, err) // what there was to wait for
		default:
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

func (e *engine) removeOnce(ctx context.Context, id string) error {
	err := e.do(ctx, workTime, "remove container "+id, func(ctx context.Context) error {
		return e.c.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
	})
	if errors.Is(err, errNotFound) {
		return nil
	}
	return err
}
