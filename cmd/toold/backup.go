package main

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/store"
)

// backups makes backups of a daemon's state, one at a time.
type backups struct {
	dir, audit string // the state's directory, and the audit log's file
	room       func(int64) error
	store      *store.Store
	turn       chan struct{} // capacity 1
}

// write writes the state as a tar: a copy of the database first, so that what that knows is then in
// the outputs and in the audit log. The last file says that it is whole.
func (b *backups) write(ctx context.Context, to io.Writer) error {
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	default:
		return fault.Overloaded.Errorf("a backup is being made").Next("wait until it is done")
	}
	dir := b.dir
	info, err := os.Stat(filepath.Join(dir, "toold.db"))
	if err != nil {
		return err
	}
	if err := b.room(info.Size()); err != nil {
		return err
	}
	db := filepath.Join(dir, "backup.db")
	if err := os.Remove(db); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a daemon that was killed
		return err
	}
	defer func() { _ = os.Remove(db) }() // the next one removes it
	if err := b.store.Backup(ctx, db); err != nil {
		return err
	}
	t := &backupTar{ctx: ctx, tar: tar.NewWriter(to)}
	err = errors.Join(t.add(db, "toold.db"), t.add(filepath.Join(dir, "owner"), "owner"), t.below(filepath.Join(dir, "output"), "output"))
	if err != nil {
		return err
	}
	if err := b.addAudit(t); err != nil {
		return err
	}
	text, err := json.Marshal(client.BackupInfo{Version: 1, Toold: version, Made: time.Now().UTC(), Files: t.files})
	if err != nil {
		return err
	}
	if err := t.tar.WriteHeader(&tar.Header{Name: client.BackupLast, Mode: 0o600, Size: int64(len(text)), ModTime: time.Now()}); err != nil {
		return err
	}
	if _, err := t.tar.Write(text); err != nil {
		return err
	}
	return t.tar.Close()
}

// addAudit adds the files of the audit log as they are at one time, by the names that it has in a
// state directory: one that is full gets another name while those before it are read.
func (b *backups) addAudit(t *backupTar) error {
	files, err := b.auditFiles()
	if err != nil {
		return err
	}
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	ext := filepath.Ext(b.audit)
	stem := strings.TrimSuffix(filepath.Base(b.audit), ext)
	for _, f := range files {
		number := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f.Name()), stem), ext)
		ext := filepath.Ext(record.DefaultName)
		if err := t.addFile(f, "audit/"+strings.TrimSuffix(record.DefaultName, ext)+number+ext); err != nil {
			return err
		}
	}
	return nil
}

// auditFiles opens them.
func (b *backups) auditFiles() ([]*os.File, error) {
	for range 10 { // looks, between which files may have got other names
		names, err := record.Files(b.audit)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		var files []*os.File
		for _, name := range names {
			f, oerr := os.Open(name)
			if oerr != nil {
				err = errors.Join(err, oerr)
				break
			}
			files = append(files, f)
		}
		if again, lerr := record.Files(b.audit); lerr == nil && err == nil && slices.Equal(names, again) {
			return files, nil
		}
		for _, f := range files {
			_ = f.Close()
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return nil, fault.Overloaded.Errorf("the audit log begins new files faster than they are read").Next("try again")
}

type backupTar struct {
	ctx   context.Context //nolint:containedctx // of one write
	tar   *tar.Writer
	files int
}

// below adds all files below a directory.
func (t *backupTar) below(dir, as string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return t.add(path, filepath.Join(as, rel))
	})
}

// add adds a file as long as it is now, or a directory. What is gone meanwhile is left out.
func (t *backupTar) add(path, as string) error {
	if err := t.ctx.Err(); err != nil {
		return context.Cause(t.ctx)
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return t.addFile(f, as)
}

func (t *backupTar) addFile(f *os.File, as string) error {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() && !info.IsDir() {
		return err
	}
	h, err := tar.FileInfoHeader(info, "")
	if err != nil {
		return err
	}
	h.Name, h.Uname, h.Gname = as, "", ""
	if err := t.tar.WriteHeader(h); err != nil || info.IsDir() {
		return err
	}
	t.files++
	if _, err := io.CopyN(t.tar, f, info.Size()); err != nil { // what is appended now is of the next backup
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	return nil
}
