package trees

import (
	"archive/tar"
	"errors"
	"io"

	"github.com/toold/toold/internal/tool/run/treediff"
)

// readArchive gives the files and links of an archive of what a session has.
func readArchive(from io.Reader, each func(path string, now treediff.Side) error) error {
	for in := tar.NewReader(from); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, from)
			return err
		}
		if err != nil {
			return err
		}
		now := treediff.Side{Mode: uint32(h.Mode) & 0o777}
		switch {
		case h.PAXRecords[treediff.RecordLeft] != "" || h.PAXRecords[treediff.RecordSize] != "":
			continue // it has no content, or not all of it: those are no texts
		case h.PAXRecords[treediff.RecordStatus] == string(treediff.Deleted):
		case h.Typeflag == tar.TypeReg && h.Size <= treediff.MaxSide:
			now.Kind, now.Data = treediff.File, make([]byte, h.Size)
			if _, err := io.ReadFull(in, now.Data); err != nil {
				return err
			}
		case h.Typeflag == tar.TypeSymlink:
			now.Kind, now.Data = treediff.Link, []byte(h.Linkname)
		default:
			continue
		}
		if err := each(h.Name, now); err != nil {
			return err
		}
	}
}
