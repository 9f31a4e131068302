package store

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/toold/toold/client"
)

// Entry is a list of changes that belong together: either all of them are kept
// or none. The zero value is an empty list. Its methods encode at once, so what
// they are given may change afterwards; an error of theirs is returned by whoever
// the entry is given to.
//
// To add a kind of record: a recordKind, a method here that encodes it, its
// fields in decodeRecord, and what it does to the database in applier.records.
type Entry struct {
	buf    []byte
	events []placed
	err    error
}

// placed is an event whose id is not known yet, and where in Entry.buf it goes.
type placed struct {
	event client.Event
	at    int
}

// recordKind is the first byte of a record. The numbers are in files.
type recordKind byte

const (
	recordInsertCall recordKind = 1 // all that is known of a call when it is asked for
	recordStartCall  recordKind = 2
	recordFinishCall recordKind = 3 // how a call ended
	recordEvent      recordKind = 4
	recordDropInput  recordKind = 5 // what stays of a large input
	recordAuditEnd   recordKind = 6
)

// record is one change of the database: the columns that it sets.
type record struct {
	kind  recordKind
	call  callRow // of recordStartCall only id and started, of recordDropInput id and input, of recordFinishCall not what was asked
	event eventRow
	audit AuditEnd
}

// callRow is a row of the table calls. Times are milliseconds, 0 for none.
type callRow struct {
	id, session, tenant, key, tool, status string
	hash, input, origin, result            []byte
	queued, started, ended                 int64
	file, total, inline                    int64
}

// eventRow is a row of the table events.
type eventRow struct {
	id, typ, tenant, session, call string
	time                           int64 // microseconds
	data                           []byte
}

// InsertCall adds a call as pending. It returns what its record takes.
func (e *Entry) InsertCall(c *Call) int64 {
	input := c.inputColumn()
	var from []byte
	if o := (origin{c.MessageID, c.Agent, c.Model, c.Extra, c.Typed, c.Parent, c.ToolSet}); o.MessageID != "" || o.Agent != "" || o.Model != "" || o.Extra != nil || o.Typed || o.Parent != "" || o.ToolSet != "" {
		b, err := json.Marshal(o)
		if err != nil {
			e.err = errors.Join(e.err, fmt.Errorf("call %s: %w", c.ID, err))
		}
		from = b
	}
	e.begin(recordInsertCall, len(c.ID)+len(c.SessionID)+len(c.Tenant)+len(c.Key)+len(c.Tool)+len(c.Hash)+len(input)+len(from))
	counted(e, c.ID, c.SessionID, c.Tenant, c.Key, c.Tool)
	counted(e, c.Hash, input, from)
	e.numbers(c.Time.Queued.UnixMilli())
	return int64(len(input) + len(from) + besideBytes)
}

// StartCall marks a pending call as running.
func (e *Entry) StartCall(id string, at time.Time) {
	e.begin(recordStartCall, len(id))
	counted(e, id)
	e.numbers(at.UnixMilli())
}

// DropInput replaces the input of a call by what stays of it. It returns what that
// takes.
func (e *Entry) DropInput(c *Call) int64 {
	input := c.inputColumn()
	e.begin(recordDropInput, len(c.ID)+len(input))
	counted(e, c.ID)
	counted(e, input)
	return int64(len(input))
}

// marshalResult is the column of a call's result.
func marshalResult(c *Call) ([]byte, error) {
	b, err := json.Marshal(result{c.Title, c.Call.Output, c.IsError, c.Metadata, c.Attachments, c.Error, c.Permission, c.Usage})
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", c.ID, err)
	}
	return b, nil
}

// FinishCall says how a call ended. One that has ended is not changed. It returns
// what the result takes.
func (e *Entry) FinishCall(c *Call) int64 {
	b, err := marshalResult(c)
	e.err = errors.Join(e.err, err)
	file := int64(0)
	if c.Output.File {
		file = 1
	}
	e.begin(recordFinishCall, len(c.ID)+len(c.Status)+len(b))
	counted(e, c.ID, string(c.Status))
	counted(e, b)
	e.numbers(millis(c.Time.Started), millis(c.Time.Ended), file, c.Output.Total, c.Output.Inline)
	return int64(len(b))
}

// AddEvent adds an event. Its id is made when the entry is kept, so that ids,
// rows and what OnEvents hears have one order.
func (e *Entry) AddEvent(v client.Event) {
	e.begin(recordEvent, eventIDLen+len(v.Type)+len(v.Tenant)+len(v.Session)+len(v.Call)+len(v.Data))
	e.events = append(e.events, placed{event: v, at: len(e.buf)})
	e.buf = e.buf[:len(e.buf)+eventIDLen]
	counted(e, v.Type, v.Tenant, v.Session, v.Call)
	counted(e, v.Data)
	e.numbers(v.Time.UnixMicro())
}

// eventIDLen is the length of an event's id.
const eventIDLen = len("evt_") + idLen

// Room for the lengths and numbers of a record, and for the event that most
// entries have besides.
const (
	recordRoom = 64
	eventRoom  = 256
)

// begin starts a record whose texts have n bytes.
func (e *Entry) begin(k recordKind, n int) {
	if n += recordRoom; cap(e.buf)-len(e.buf) < n {
		e.buf = slices.Grow(e.buf, n+eventRoom)
	}
	e.buf = append(e.buf, byte(k))
}

// counted adds texts or bytes, each behind its length.
func counted[T ~string | ~[]byte](e *Entry, values ...T) {
	for _, v := range values {
		e.buf = append(binary.AppendUvarint(e.buf, uint64(len(v))), v...)
	}
}

func (e *Entry) numbers(values ...int64) {
	for _, v := range values {
		e.buf = binary.AppendVarint(e.buf, v)
	}
}

// errRecord is a record that does not decode.
var errRecord = errors.New("not a record of this version")

// decodeRecord reads the first record of b. Its byte slices are parts of b.
func decodeRecord(b []byte) (r record, rest []byte, err error) {
	if len(b) == 0 {
		return r, nil, errRecord
	}
	r.kind = recordKind(b[0])
	d := decoder{b: b[1:]}
	switch c, e := &r.call, &r.event; r.kind {
	case recordInsertCall:
		c.status = string(client.CallPending)
		d.text(&c.id, &c.session, &c.tenant, &c.key, &c.tool)
		d.bytes(&c.hash, &c.input, &c.origin)
		d.numbers(&c.queued)
	case recordStartCall:
		c.status = string(client.CallRunning)
		d.text(&c.id)
		d.numbers(&c.started)
	case recordFinishCall:
		d.text(&c.id, &c.status)
		d.bytes(&c.result)
		d.numbers(&c.started, &c.ended, &c.file, &c.total, &c.inline)
	case recordDropInput:
		d.text(&c.id)
		d.bytes(&c.input)
	case recordAuditEnd:
		r.audit = d.auditEnd()
	case recordEvent:
		if d.bad = len(d.b) < eventIDLen; !d.bad {
			e.id, d.b = string(d.b[:eventIDLen]), d.b[eventIDLen:]
		}
		d.text(&e.typ, &e.tenant, &e.session, &e.call)
		d.bytes(&e.data)
		d.numbers(&e.time)
	default:
		d.bad = true
	}
	if d.bad {
		return record{}, nil, errRecord
	}
	return r, d.b, nil
}

// decoder takes values from the front of b. After the first that is not there it
// is bad and gives nothing.
type decoder struct {
	b   []byte
	bad bool
}

// value takes a text or bytes with its length before it.
func (d *decoder) value() []byte {
	size, n := binary.Uvarint(d.b)
	if d.bad || n <= 0 || size > uint64(len(d.b)-n) {
		d.bad = true
		return nil
	}
	end := n + int(size)
	v := d.b[n:end:end]
	d.b = d.b[end:]
	return v
}

func (d *decoder) text(into ...*string) {
	for _, p := range into {
		*p = string(d.value())
	}
}

// bytes gives nil for what is empty: a column without a value is NULL.
func (d *decoder) bytes(into ...*[]byte) {
	for _, p := range into {
		if v := d.value(); len(v) > 0 {
			*p = v
		}
	}
}

func (d *decoder) numbers(into ...*int64) {
	for _, p := range into {
		v, n := binary.Varint(d.b)
		if d.bad || n <= 0 {
			d.bad = true
			return
		}
		*p, d.b = v, d.b[n:]
	}
}
