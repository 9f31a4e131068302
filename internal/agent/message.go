package agent

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/fxamacker/cbor/v2"

	"github.com/toold/toold/internal/tool/run"
)

// Bounds of the protocol. Both ends know them; the daemon's enforces them.
const (
	protocolVersion = 1

	// maxUp is the largest frame from an agent, maxDown from the daemon: an
	// input of 16 MiB, what Prepare saw, and some room.
	maxUp   = 128 << 10
	maxDown = 17 << 20

	// maxInline is the largest body that comes with a final message; larger
	// ones are offered, and sent in chunks when the daemon grants it.
	maxInline = 64 << 10
	maxChunk  = 64 << 10
	// maxBody is the largest result of one call or Prepare.
	maxBody = 32 << 20

	// maxMetadata is the largest encoded metadata of a result, maxProgress of an
	// update.
	maxMetadata = 64 << 10
	maxProgress = 16 << 10

	// window is how much output of one call may be under way to a sink.
	window = 256 << 10

	maxCallID = 128

	// maxHello bounds the first frame, which may come from a stranger.
	maxHello = 1 << 20
)

// kind is the type of a message. See the package comment for the table.
type kind uint8

const (
	// From the daemon.
	kindHello kind = iota + 1
	kindPrepare
	kindRun
	kindResume
	kindCredit
	kindGrant
	kindDetach
	kindAck
	kindForget
	kindAbort
	kindFreeTmp
	kindPing
)

const (
	// From the agent.
	kindWelcome kind = iota + 64
	kindOutput
	kindMetadata
	kindOffer
	kindChunk
	kindDone
	kindDetached
)

// head is the first item of every frame; the body is the rest of the frame.
type head struct {
	_    struct{} `cbor:",toarray"`
	Kind kind
	// ID names the exchange: the daemon counts up from 1 on each connection.
	// 0 where a message belongs to no exchange.
	ID uint64
	// N is an offset, a limit or a size, as the kind says.
	N int64
	// Flag is: stderr (output).
	Flag bool
}

// hello is the body of kindHello.
type hello struct {
	Version      int      `cbor:"1,keyasint"`
	Nonce        []byte   `cbor:"2,keyasint"`
	Worktree     string   `cbor:"3,keyasint"`
	Home         string   `cbor:"4,keyasint"`
	Tmp          string   `cbor:"5,keyasint"`
	OutputDir    string   `cbor:"6,keyasint"`
	ToolUID      int      `cbor:"7,keyasint"`
	ToolGID      int      `cbor:"8,keyasint"`
	Env          []string `cbor:"9,keyasint"`
	Shell        []string `cbor:"10,keyasint"`
	OpenFiles    int64    `cbor:"11,keyasint"`
	FileSize     int64    `cbor:"12,keyasint"`
	UnackedBytes int64    `cbor:"13,keyasint"`
	OrphanMillis int64    `cbor:"14,keyasint"`
	CallCgroup   bool     `cbor:"15,keyasint"` // a descriptor comes with this frame
	// Left out where they are 0, so that agents of before they came do not mind.
	Memory int64 `cbor:"16,keyasint,omitempty"`
	PIDs   int64 `cbor:"17,keyasint,omitempty"`
}

// welcome is the body of kindWelcome.
type welcome struct {
	Version string      `cbor:"1,keyasint"`
	ForkTID int         `cbor:"2,keyasint"`
	Calls   []callState `cbor:"3,keyasint"`
	Notes   []string    `cbor:"4,keyasint"`
}

type callState struct {
	_        struct{} `cbor:",toarray"`
	ID       string
	Finished bool
	Base     int64
	End      int64
}

// request is the body of kindPrepare and kindRun.
type request struct {
	CallID        string    `cbor:"1,keyasint"`
	Tool          string    `cbor:"2,keyasint"`
	Input         []byte    `cbor:"3,keyasint"`
	Settings      []byte    `cbor:"4,keyasint,omitempty"`
	Env           []string  `cbor:"5,keyasint,omitempty"`
	TimeoutMillis int64     `cbor:"6,keyasint,omitempty"`
	MaxOutput     int64     `cbor:"7,keyasint,omitempty"`
	Prepared      *prepared `cbor:"8,keyasint,omitempty"`
	Split         bool      `cbor:"9,keyasint,omitempty"`
	Expect        *[]string `cbor:"10,keyasint,omitempty"`
	Paths         []string  `cbor:"11,keyasint,omitempty"`
}

// abort is the body of kindAbort.
type abort struct {
	CallID string `cbor:"1,keyasint"`
	Reason string `cbor:"2,keyasint"`
}

// done is the body of kindDone. For Prepare, Run and Resume the payload (a
// prepared or a result) stands in Payload or was sent in chunks before.
type done struct {
	Err       *run.Error      `cbor:"1,keyasint,omitempty"`
	Refused   refusal         `cbor:"2,keyasint,omitempty"`
	Exit      *run.Exit       `cbor:"3,keyasint,omitempty"`
	OutputEnd int64           `cbor:"4,keyasint,omitempty"`
	Payload   cbor.RawMessage `cbor:"5,keyasint,omitempty"`
	// NotRun: Run has not found what it was to expect; the payload is a prepared.
	NotRun bool `cbor:"6,keyasint,omitempty"`
}

// refusal says why an agent did not take up a call at all.
type refusal uint8

const (
	refusedUnknown   refusal = iota + 1 // no such call
	refusedDuplicate                    // Run of a call that the agent holds
	refusedOffset                       // Resume from an offset that is gone
)

// result is run.Result on the wire. Metadata stays encoded until its size has
// been checked: its values expand when they are decoded, strings do not.
type result struct {
	Title       string           `cbor:"1,keyasint,omitempty"`
	Output      string           `cbor:"2,keyasint,omitempty"`
	IsError     bool             `cbor:"3,keyasint,omitempty"`
	Metadata    cbor.RawMessage  `cbor:"4,keyasint,omitempty"`
	Attachments []run.Attachment `cbor:"5,keyasint,omitempty"`
	Quote       string           `cbor:"6,keyasint,omitempty"`
}

// prepared is run.Prepared on the wire.
type prepared struct {
	Targets []run.Target `cbor:"1,keyasint,omitempty"`
	Diff    string       `cbor:"2,keyasint,omitempty"`
	Result  *result      `cbor:"3,keyasint,omitempty"`
	State   []byte       `cbor:"4,keyasint,omitempty"`
}

// codec holds the modes of the CBOR library. Text may be invalid UTF-8 on the
// wire, because file names may; what is shown is cleaned when it is taken.
type codec struct {
	enc cbor.EncMode
	dec cbor.DecMode
	// update decodes metadata of calls that run, which an agent may send often:
	// it takes few elements.
	update cbor.DecMode
}

func newCodec() codec {
	enc, err := cbor.EncOptions{}.EncMode()
	if err != nil {
		panic(err) // constant options
	}
	options := cbor.DecOptions{
		DupMapKey:         cbor.DupMapKeyEnforcedAPF,
		IndefLength:       cbor.IndefLengthForbidden,
		TagsMd:            cbor.TagsForbidden,
		IntDec:            cbor.IntDecConvertSignedOrFail,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
		DefaultMapType:    reflect.TypeFor[map[string]any](),
		UTF8:              cbor.UTF8DecodeInvalid,
		MaxNestedLevels:   32,
		MaxArrayElements:  65536,
		MaxMapPairs:       65536,
	}
	dec, err := options.DecMode()
	if err != nil {
		panic(err)
	}
	options.MaxNestedLevels, options.MaxArrayElements, options.MaxMapPairs = 8, 1024, 1024
	update, err := options.DecMode()
	if err != nil {
		panic(err)
	}
	return codec{enc: enc, dec: dec, update: update}
}

// wire is the one codec; its modes are immutable.
var wire = newCodec()

// appendHead appends the encoding of h, the only CBOR that is written by hand,
// because every chunk of output begins with one.
func appendHead(b []byte, h head) []byte {
	b = append(b, 0x84)
	b = appendUint(b, 0x00, uint64(h.Kind))
	b = appendUint(b, 0x00, h.ID)
	if h.N >= 0 {
		b = appendUint(b, 0x00, uint64(h.N))
	} else {
		b = appendUint(b, 0x20, uint64(-1-h.N))
	}
	if h.Flag {
		return append(b, 0xf5)
	}
	return append(b, 0xf4)
}

func appendUint(b []byte, major byte, n uint64) []byte {
	switch {
	case n < 24:
		return append(b, major|byte(n))
	case n <= math.MaxUint8:
		return append(b, major|24, byte(n))
	case n <= math.MaxUint16:
		return append(b, major|25, byte(n>>8), byte(n))
	case n <= math.MaxUint32:
		return append(b, major|26, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	default:
		return append(b, major|27, byte(n>>56), byte(n>>48), byte(n>>40), byte(n>>32),
			byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
}

// parseFrame splits a frame into its head and its body.
func parseFrame(frame []byte) (h head, body []byte, err error) {
	body, err = wire.dec.UnmarshalFirst(frame, &h)
	return h, body, err
}

// encodeResult makes the wire form of r.
func encodeResult(r *run.Result) *result {
	if r == nil {
		return nil
	}
	return &result{
		Title: r.Title, Output: r.Output, IsError: r.IsError, Attachments: r.Attachments,
		Metadata: encodeMetadata(r.Metadata), Quote: r.Quote,
	}
}

// encodeMetadata encodes metadata. Neither it nor the result is lost for what cannot
// be encoded or is too large: that is left out, the largest first, and named.
func encodeMetadata(metadata map[string]any) []byte {
	if len(metadata) == 0 {
		return nil
	}
	all, err := wire.enc.Marshal(metadata)
	if err == nil && len(all) <= maxMetadata {
		return all
	}
	const room = 4 << 10 // for the note
	parts, size := make(map[string]any, len(metadata)), 0
	var left []string
	for name, value := range metadata {
		part, err := wire.enc.Marshal(value)
		if err != nil {
			left = append(left, fmt.Sprintf("%s (%v)", name, err))
			continue
		}
		parts[name] = cbor.RawMessage(part)
		size += len(name) + len(part) + 16
	}
	for size > maxMetadata-room {
		var largest string
		for name, part := range parts {
			if l, ok := parts[largest]; !ok || len(part.(cbor.RawMessage)) > len(l.(cbor.RawMessage)) {
				largest = name
			}
		}
		n := len(parts[largest].(cbor.RawMessage))
		left = append(left, fmt.Sprintf("%s (%d bytes)", largest, n))
		size -= len(largest) + n + 16
		delete(parts, largest)
	}
	slices.Sort(left)
	text := "left out: " + strings.Join(left, ", ") + fmt.Sprintf("; metadata is at most %d bytes", maxMetadata)
	parts["metadata_error"] = strings.ToValidUTF8(text[:min(len(text), room/2)], "")
	all, _ = wire.enc.Marshal(parts) // of parts that were encoded
	return all
}

func encodePrepared(p *run.Prepared) *prepared {
	if p == nil {
		return nil
	}
	return &prepared{Targets: p.Targets, Diff: p.Diff, Result: encodeResult(p.Result), State: p.State}
}

// decodeUpdate decodes metadata of a call that runs.
func decodeUpdate(raw []byte) (map[string]any, error) {
	var m map[string]any
	if err := wire.update.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	return cleanMap(m), nil
}

// decodeMetadata bounds and decodes metadata of a result.
func decodeMetadata(raw []byte) (map[string]any, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if len(raw) > maxMetadata {
		return nil, fmt.Errorf("metadata of %d bytes; the limit is %d", len(raw), maxMetadata)
	}
	var m map[string]any
	if err := wire.dec.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	return cleanMap(m), nil
}

func decodeResult(w *result) (*run.Result, error) {
	if w == nil {
		return nil, nil
	}
	m, err := decodeMetadata(w.Metadata)
	if err != nil {
		return nil, err
	}
	for i := range w.Attachments {
		a := &w.Attachments[i]
		a.Filename, a.MIME = clean(a.Filename), clean(a.MIME)
	}
	return &run.Result{
		Title: clean(w.Title), Output: clean(w.Output), IsError: w.IsError,
		Metadata: m, Attachments: w.Attachments, Quote: clean(w.Quote),
	}, nil
}

func decodePrepared(w *prepared) (*run.Prepared, error) {
	if w == nil {
		return nil, nil
	}
	r, err := decodeResult(w.Result)
	if err != nil {
		return nil, err
	}
	if len(w.Diff) > run.MaxDiff+4096 {
		return nil, fmt.Errorf("diff of %d bytes; the limit is %d", len(w.Diff), run.MaxDiff)
	}
	if len(w.State) > 0 && !json.Valid(w.State) {
		return nil, fmt.Errorf("state of %d bytes is not JSON", len(w.State))
	}
	return &run.Prepared{Targets: w.Targets, Diff: clean(w.Diff), Result: r, State: w.State}, nil
}

// resume is the body of kindResume.
type resume struct {
	CallID string `cbor:"1,keyasint"`
	Offset int64  `cbor:"2,keyasint"`
}
