package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/docker/docker/api/types/image"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
)

// imageOf finds the image of a session. The configured one is pulled when the Engine
// does not have it; what a session asks for must be there, so that nobody makes the
// Engine fetch what they like.
func (d *Driver) imageOf(ctx context.Context, ref string) (*image.InspectResponse, error) {
	configured := ref == "" || ref == d.cfg.Image
	if ref == "" {
		ref = d.cfg.Image
	}
	if ref == "" {
		return nil, fmt.Errorf("no image: the session names none, and sandbox.rootfs of the configuration is not one: %w", sandbox.ErrUnsupported)
	}
	img, err := d.engine.image(ctx, ref)
	if _, digest, ok := strings.Cut(ref, "@sha256:"); ok && errors.Is(err, errNotFound) {
		// As a session names its own. The Engine knows only digests of registries beside names.
		img, err = d.engine.image(ctx, "sha256:"+digest)
	}
	if errors.Is(err, errNotFound) && configured && !strings.HasPrefix(ref, "sha256:") {
		d.log.Info("the Docker Engine does not have the configured image: pulling it", "image", ref)
		if err := d.engine.pull(ctx, ref, func(client.ImageProgress) {}); err != nil {
			return nil, err
		}
		img, err = d.engine.image(ctx, ref)
	}
	if err != nil {
		return nil, err
	}
	if img.Os != "linux" || img.Architecture != runtime.GOARCH {
		return nil, fmt.Errorf("image %q is for %.20q on %.20q, and this host is linux on %s: %w", ref, img.Os, img.Architecture, runtime.GOARCH, sandbox.ErrUnsupported)
	}
	return img, nil
}

// pull waits until the Engine has an image; how long that takes, the caller says.
func (e *engine) pull(ctx context.Context, ref string, progress func(client.ImageProgress)) error {
	what := "pull image " + ref
	r, err := e.c.ImagePull(ctx, ref, image.PullOptions{})
	if err != nil {
		return e.explain(ctx, what, err)
	}
	defer r.Close()
	err = eachLine(r, func(l line) {
		progress(client.ImageProgress{Stage: stage(l.Status), Bytes: l.ProgressDetail.Current, Total: l.ProgressDetail.Total})
	})
	if err != nil {
		return e.explain(ctx, what, err)
	}
	return nil
}

// line is what the Engine says while it works on an image.
type line struct {
	Error, Status, Stream string
	ProgressDetail        struct{ Current, Total int64 }
}

// eachLine calls f for one after the other; the last may be an error.
func eachLine(r io.Reader, f func(line)) error {
	for dec := json.NewDecoder(r); ; {
		var l line
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if l.Error != "" {
			return errors.New(l.Error)
		}
		f(l)
	}
}

// stage is what the Engine says that it does, in the words of client.ImageProgress.
func stage(status string) string {
	switch {
	case strings.HasPrefix(status, "Download"):
		return "download"
	case strings.HasPrefix(status, "Extract"):
		return "unpack"
	case strings.HasPrefix(status, "Pull complete"), strings.HasPrefix(status, "Status"):
		return "commit"
	default:
		return "resolve"
	}
}
