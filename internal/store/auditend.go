package store

import (
	"context"
	"errors"
)

// AuditEnd is how an audit log ended when it was last written to. It is noted after each
// write, so the log has this record and those before it, and may have newer ones.
type AuditEnd struct {
	Log string // which log: its path, as the daemon names it
	// First is the number of the oldest record that was in the log, Seq that of the last
	// one; 0 = nothing is noted.
	First, Seq uint64
	Hash       string // of record Seq
	Boot       int64  // which boot of the machine wrote it: one that lost its power may have lost records
}

// AuditEnd notes how an audit log ends now.
func (e *Entry) AuditEnd(a *AuditEnd) {
	e.begin(recordAuditEnd, len(a.Log)+len(a.Hash))
	counted(e, a.Log, a.Hash)
	e.numbers(int64(a.First), int64(a.Seq), a.Boot)
}

func (d *decoder) auditEnd() (a AuditEnd) {
	var first, seq int64
	d.text(&a.Log, &a.Hash)
	d.numbers(&first, &seq, &a.Boot)
	a.First, a.Seq = uint64(first), uint64(seq)
	return a
}

// auditEnd keeps the newest of a batch, since nobody reads those before it.
func (a *applier) auditEnd(end *AuditEnd) error {
	if a.audit != nil && a.audit.Log != end.Log {
		if err := a.writeAuditEnd(); err != nil {
			return err
		}
	}
	a.audit = end
	return nil
}

func (a *applier) writeAuditEnd() error {
	if a.audit == nil {
		return nil
	}
	e := a.audit
	a.audit = nil
	return a.exec("INSERT OR REPLACE INTO audit_ends (log, first, seq, hash, boot) VALUES (?, ?, ?, ?, ?)",
		e.Log, int64(e.First), int64(e.Seq), e.Hash, e.Boot)
}

// AuditEnd is what was noted last of the audit log of this name; zero, but for its name,
// where nothing was.
func (s *Store) AuditEnd(ctx context.Context, log string) (end AuditEnd, err error) {
	defer naming(&err, "read how the audit log ended")
	waiting, err := s.settle(ctx)
	if err != nil {
		return AuditEnd{}, err
	}
	end, err = one(ctx, &s.rd, "SELECT first, seq, hash, boot FROM audit_ends WHERE log = ?", func(scan scanner) (AuditEnd, error) {
		a, first, seq := AuditEnd{Log: log}, int64(0), int64(0)
		err := scan(&first, &seq, &a.Hash, &a.Boot)
		a.First, a.Seq = uint64(first), uint64(seq)
		return a, err
	}, log)
	if errors.Is(err, ErrNotFound) {
		end, err = AuditEnd{Log: log}, nil
	}
	if waiting != nil {
		for _, a := range waiting.audits {
			if a.Log == log {
				end = a
			}
		}
	}
	return end, err
}
