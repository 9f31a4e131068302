package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/toold/toold/internal/audit"
	"github.com/toold/toold/internal/store"
)

// openAudit opens the audit log of cfg, and notes in the store how it ends.
func (d *daemon) openAudit(st *store.Store) error {
	path := d.cfg.AuditPath()
	if err := auditDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("directory of the audit log: %w", err)
	}
	name := path
	if rel, err := filepath.Rel(d.cfg.Daemon.StateDir, path); err == nil && filepath.IsLocal(rel) {
		name = rel // a state directory may be moved, or restored in another place
	}
	last, err := st.AuditEnd(context.Background(), name)
	if err != nil {
		return err
	}
	log, err := audit.Open(audit.Config{
		Path: path, Strict: d.cfg.Audit.Mode != "lenient", Inputs: d.cfg.Audit.Inputs,
		Rotate: int64(d.cfg.Audit.Rotate), Log: d.log,
		Last: audit.End{First: last.First, Seq: last.Seq, Hash: last.Hash, Boot: last.Boot},
		Note: func(e audit.End) error {
			var note store.Entry
			note.AuditEnd(&store.AuditEnd{Log: name, First: e.First, Seq: e.Seq, Hash: e.Hash, Boot: e.Boot})
			return st.Append(&note)
		},
	})
	if err != nil {
		return err
	}
	d.audit = log
	d.onClose("audit log", log.Close)
	return nil
}

// auditDir makes the directory of the log, for root alone, or checks one that is
// there: who can write it can put another file into the log's place.
func auditDir(dir string) error {
	if _, err := makeOrCheck(dir, 0o700); err != nil {
		return fmt.Errorf("%w; or give the log a directory of its own with audit.path", err)
	}
	return nil
}
