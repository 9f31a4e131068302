package main

import (
	"fmt"
	"path/filepath"

	"github.com/toold/toold/internal/audit"
)

// openAudit opens the audit log of cfg.
func (d *daemon) openAudit() error {
	path := d.cfg.AuditPath()
	if err := auditDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("directory of the audit log: %w", err)
	}
	log, err := audit.Open(audit.Config{
		Path: path, Strict: d.cfg.Audit.Mode != "lenient", Inputs: d.cfg.Audit.Inputs,
		Rotate: int64(d.cfg.Audit.Rotate), Log: d.log,
	})
	if err != nil {
		return err
	}
	d.audit = log
	d.onClose(log.Close)
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
