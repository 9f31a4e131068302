package root

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"golang.org/x/sys/unix"
)

// CommitFile is Commit with what is left to read of src, which may be more than
// fits in memory. A new file gets the permission bits of mode, where they are
// not 0; a file that is replaced keeps its own.
func (p *Replacement) CommitFile(ctx context.Context, src *File, mode fs.FileMode, o CommitOptions) (*Committed, error) {
	fill := func(t *temp) error {
		if err := copyFile(ctx, t, src); err != nil {
			return err
		}
		if mode.Perm() != 0 && !p.info.Exists {
			return unix.Fchmod(t.fd, uint32(mode.Perm()))
		}
		return nil
	}
	var done *Committed
	err := p.r.do(ctx, func() error {
		var err error
		done, err = p.commit(fill, o)
		return err
	})
	return done, err
}

func copyFile(ctx context.Context, t *temp, src *File) error {
	buf := make([]byte, readChunk)
	for {
		n, err := src.read(buf)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := t.write(ctx, buf[:n]); err != nil {
			return err
		}
	}
}
