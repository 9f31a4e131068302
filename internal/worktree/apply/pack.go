package apply

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// A pack is a file with the bases of many paths: a line of JSON that names them, and their
// contents one behind the other. It never changes. To make a file of each base takes ten times
// as long where a call has written thousands.
const (
	packName = "pack"
	// manyBases are so many that they are a pack.
	manyBases = 16
	// maxPackHead bounds the line of JSON, in bytes: the paths that are remembered of a session have
	// 8 MiB, and JSON may make six of one.
	maxPackHead = 64 << 20
)

// packed is a base in a pack.
type packed struct {
	Path raw   `json:"path"`
	Size int64 `json:"size"`
	baseHead

	name string // of the pack
	at   int64
}

// packs is how the packs of a session that began then are called.
func packs(since int64) string { return fmt.Sprintf("%s/%s-%d-", baseDir, packName, since) }

// keepAll keeps bases.
func (d *state) keepAll(since int64, all []base) (err error) {
	if len(all) > manyBases {
		return d.keepPack(since, all)
	}
	for i := 0; err == nil && i < len(all); i++ {
		err = keepBase(d.path(baseName(all[i].path, since)), all[i].baseHead, bytes.NewReader(all[i].content))
	}
	return err
}

// keepPack keeps bases of paths that have none.
func (d *state) keepPack(since int64, all []base) error {
	if err := os.MkdirAll(d.path(baseDir), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(d.path(baseDir), newSuffix)
	if err != nil {
		return err
	}
	heads := make([]packed, len(all))
	for i, b := range all {
		heads[i] = packed{Path: raw(b.path), Size: int64(len(b.content)), baseHead: b.baseHead}
	}
	out := bufio.NewWriterSize(f, 256<<10)
	err = json.NewEncoder(out).Encode(heads)
	for i := 0; err == nil && i < len(all); i++ {
		_, err = out.Write(all[i].content)
	}
	// Not synced, as a base is not: the sums tell.
	err = errors.Join(err, out.Flush(), f.Close())
	if err == nil {
		_, unique, _ := strings.Cut(f.Name(), newSuffix)
		err = os.Rename(f.Name(), d.path(packs(since)+unique))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// readPack reads the line of a pack.
func (d *state) readPack(name string) (line []byte, err error) {
	f, err := os.Open(d.path(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	line, err = bufio.NewReaderSize(io.LimitReader(f, maxPackHead), 64<<10).ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return line, err
}

// unpacked gives the bases of packs, of which these are the lines. One that is torn has none.
func unpacked(lines map[string][]byte) map[string]packed {
	all := make(map[string]packed)
	for name, line := range lines {
		var heads []packed
		if json.Unmarshal(line, &heads) != nil {
			continue
		}
		at := int64(len(line))
		for _, p := range heads {
			if p.Path == "" || p.Size < 0 || p.Size > maxMerge {
				break
			}
			p.name, p.at = name, at
			all[string(p.Path)] = p
			at += p.Size
		}
	}
	return all
}

// content reads a base out of its pack; errNoBase where that is torn.
func (d *state) content(p packed) ([]byte, error) {
	f, err := os.Open(d.path(p.name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, p.Size)
	if _, err := f.ReadAt(b, p.at); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if string(p.Sum) != sumOf(string(b)) {
		return nil, errNoBase
	}
	return b, nil
}
