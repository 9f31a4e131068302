package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
)

// Small bounds, in bytes, what stays of an input and of an output in a record
// that is shortened.
const Small = 4 << 10

// bulky is from which size on a record is worth shortening.
const bulky = 4 * Small

// besideBytes is what a call takes beside its input and result: the rest of its row, its
// events, and their places in indexes. Its approvals come on top.
const besideBytes = 2 << 10

// The size of a call's record. Both parts stand in an index.
const (
	ownBytes    = "(length(input) + ifnull(length(origin), 0) + ifnull(length(result), 0))" // what its maker and its result decide
	recordBytes = ownBytes + " + beside"
)

// notKeptPrefix begins what stands in the column of an input that is not kept: no
// JSON begins like it. The hash, a space and the number of bytes follow.
const notKeptPrefix = "sha256:"

// DropInput leaves of a large input its hash and size.
func (c *Call) DropInput() {
	if len(c.Input) <= Small {
		return
	}
	sum := sha256.Sum256(c.Input)
	c.InputNotKept = &client.NotKept{Bytes: int64(len(c.Input)), SHA256: hex.EncodeToString(sum[:])}
	c.Input = nil
}

// Shorten leaves of the record of a call that has ended what is small, and says
// in it how much of the result is not kept.
func (c *Call) Shorten() {
	c.DropInput()
	dropped := 0
	if over := len(c.Call.Output) - Small; over > 0 {
		cut := plain.RuneStart(c.Call.Output, Small)
		dropped += len(c.Call.Output) - cut
		c.Call.Output = strings.Clone(c.Call.Output[:cut])
		c.Output.Inline = 0 // it is not the whole output any more
	}
	for _, a := range c.Attachments {
		dropped += len(a.URL)
	}
	c.Attachments = nil
	meta := make(map[string]any, len(c.Metadata))
	for k, v := range c.Metadata {
		if b, err := json.Marshal(v); err != nil || len(b) > Small/8 {
			dropped += len(b)
		} else {
			meta[k] = v
		}
	}
	if dropped == 0 {
		return
	}
	before, _ := meta[metaNotKept].(float64)
	meta[metaNotKept] = int64(before) + int64(dropped)
	c.Metadata = meta
}

// metaNotKept is the metadata of a record that was shortened: how many bytes of
// the result it has lost.
const metaNotKept = "not_kept_bytes"

// inputColumn is what is stored of the input.
func (c *Call) inputColumn() []byte {
	if n := c.InputNotKept; n != nil {
		return fmt.Appendf(nil, "%s%s %d", notKeptPrefix, n.SHA256, n.Bytes)
	}
	return c.Input
}

// setInput is the opposite of inputColumn.
func (c *Call) setInput(b []byte) error {
	rest, ok := bytes.CutPrefix(b, []byte(notKeptPrefix))
	if !ok {
		c.Input = b
		return nil
	}
	sum, size, _ := strings.Cut(string(rest), " ")
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: input of call %s: %w", ErrCorrupt, c.ID, err)
	}
	c.InputNotKept = &client.NotKept{Bytes: n, SHA256: sum}
	return nil
}

// RecordBytes is how much the records of calls take, by tenant.
func (s *Store) RecordBytes(ctx context.Context) (map[string]int64, error) {
	return s.sumByTenant(ctx, "SELECT tenant, sum("+recordBytes+") FROM calls GROUP BY tenant")
}

const (
	whereBulky = "ended > 0 AND " + ownBytes + " > ?"
	whereOver  = "session IN (SELECT id FROM sessions WHERE live = 0)"
)

// Shortenable is about how much ShortenRecords would free of calls of sessions
// that are over, by tenant.
func (s *Store) Shortenable(ctx context.Context) (map[string]int64, error) {
	return s.sumByTenant(ctx, "SELECT tenant, sum("+ownBytes+" - ?) FROM calls WHERE "+whereBulky+" AND "+whereOver+" GROUP BY tenant", Small, bulky)
}

func (s *Store) sumByTenant(ctx context.Context, query string, args ...any) (all map[string]int64, err error) {
	defer naming(&err, "measure records")
	if err := s.flush(ctx); err != nil {
		return nil, err
	}
	all = make(map[string]int64)
	_, err = list(ctx, &s.rd, query, func(scan scanner) (tenant string, err error) {
		var n int64
		err = scan(&tenant, &n)
		all[tenant] = n
		return tenant, err
	}, args...)
	return all, err
}

// shortenBytes and shortenRows bound one step of ShortenRecords.
const (
	shortenBytes = 32 << 20
	shortenRows  = 64
)

// ShortenRecords shortens the records of a tenant's calls that have ended, the
// oldest first, until it has freed want bytes; over restricts it to calls of
// sessions that are over. It returns how much it has freed.
func (s *Store) ShortenRecords(ctx context.Context, tenant string, over bool, want int64) (freed int64, err error) {
	defer naming(&err, "shorten records")
	query := sqlCallColumns + "WHERE tenant = ? AND id > ? AND " + whereBulky
	if over {
		query += " AND " + whereOver
	}
	query += " ORDER BY id LIMIT ?"
	if err := s.flush(ctx); err != nil {
		return 0, err
	}
	for last := ""; freed < want; {
		calls, err := s.bulk(ctx, query, tenant, last, bulky, shortenRows)
		if err != nil || len(calls) == 0 {
			return freed, err
		}
		last = calls[len(calls)-1].ID
		n, err := s.shorten(calls, want-freed)
		if freed += n; err != nil {
			return freed, err
		}
	}
	return freed, nil
}

// bulk reads the next calls of a query, as many as fit into a step.
func (s *Store) bulk(ctx context.Context, query string, args ...any) (calls []*Call, err error) {
	rows, err := s.rd.query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for total := 0; total < shortenBytes && rows.Next(); {
		row, err := scanRow(rows.Scan)
		if err != nil {
			return nil, err
		}
		c, err := row.decode()
		if err != nil {
			return nil, err
		}
		total += row.size()
		calls = append(calls, c)
	}
	return calls, classify(rows.Err())
}

// shorten shortens calls until want bytes are free.
func (s *Store) shorten(calls []*Call, want int64) (freed int64, err error) {
	err = s.Write(func(tx *Tx) error {
		freed = 0
		for _, c := range calls {
			if freed >= want {
				break
			}
			short := *c
			short.Shorten()
			input, result, err := short.inputColumn(), []byte(nil), error(nil)
			if result, err = marshalResult(&short); err != nil {
				return err
			}
			before, err := tx.recordSize(c.ID)
			if errors.Is(err, ErrNotFound) { // a sweep was faster
				continue
			}
			if err != nil {
				return err
			}
			if _, err := tx.st.exec("UPDATE calls SET input = ?, result = ?, out_inline = ? WHERE id = ? AND ended > 0",
				filled(input), result, short.Output.Inline, c.ID); err != nil {
				return err
			}
			after, err := tx.recordSize(c.ID)
			if err != nil {
				return err
			}
			freed += before - after
		}
		return nil
	})
	return freed, err
}

func (tx *Tx) recordSize(call string) (int64, error) {
	return one(context.Background(), tx.st, "SELECT "+recordBytes+" FROM calls WHERE id = ?", column[int64], call)
}

// Removed is a record that was removed, with what it took.
type Removed struct {
	Output OutputRef
	File   bool // it had an output file
	Tenant string
	Bytes  int64
}

// RemoveRecords removes the oldest records of a tenant's calls that have ended, as
// many as one step of a sweep does.
func (s *Store) RemoveRecords(tenant string) (gone []Removed, err error) {
	defer naming(&err, "remove records")
	return s.removeCalls(sqlRemoveCalls, tenant, sweepRows)
}

// removeCalls does a statement that deletes calls, and says which. Their approvals go too.
func (s *Store) removeCalls(text string, args ...any) (gone []Removed, err error) {
	err = s.Write(func(tx *Tx) (err error) {
		gone, err = list(context.Background(), tx.st, text, func(scan scanner) (r Removed, err error) {
			err = scan(&r.Output.Session, &r.Output.Call, &r.File, &r.Tenant, &r.Bytes)
			return r, err
		}, args...)
		for _, r := range gone {
			if _, e := tx.st.exec("DELETE FROM approvals WHERE call = ?", r.Output.Call); e != nil {
				err = errors.Join(err, e)
			}
		}
		return err
	})
	return gone, err
}

// RemoveOrphans removes the events of a tenant's calls that have no record any more.
func (s *Store) RemoveOrphans(ctx context.Context, tenant string) (err error) {
	defer naming(&err, "remove events")
	if err := s.flush(ctx); err != nil {
		return err
	}
	for last := ""; ; {
		ids, err := list(ctx, &s.rd, sqlOrphans, column[string], last, tenant, sweepRows)
		if err != nil || len(ids) == 0 {
			return err
		}
		last = ids[len(ids)-1]
		if err := s.Write(func(tx *Tx) error {
			for _, id := range ids {
				if _, err := tx.st.exec("DELETE FROM events WHERE id = ?", id); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
}

// FreeBytes is the room inside of the database's file, which does not shrink:
// pages of what was removed are used again.
func (s *Store) FreeBytes(ctx context.Context) (int64, error) {
	var pages, size int64
	for query, into := range map[string]*int64{"PRAGMA freelist_count": &pages, "PRAGMA page_size": &size} {
		if err := s.read.QueryRowContext(ctx, query).Scan(into); err != nil {
			return 0, fmt.Errorf("measure the database: %w", classify(err))
		}
	}
	return pages * size, nil
}
