package wire

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
	// Version is that of the protocol: both ends must have the same.
	Version = 1

	// MaxUp is the largest frame from an agent, MaxDown from the daemon: an
	// input of 16 MiB, what Prepare saw, and some room.
	MaxUp   = 128 << 10
	MaxDown = 17 << 20

	// MaxInline is the largest body that comes with a final message; larger
	// ones are offered, and sent in chunks when the daemon grants it.
	MaxInline = 64 << 10
	MaxChunk  = 64 << 10
	// MaxBody is the largest result of one call or Prepare.
	MaxBody = 32 << 20

	// MaxMetadata is the largest encoded metadata of a result, MaxProgress of an
	// update.
	MaxMetadata = 64 << 10
	MaxProgress = 16 << 10

	// MaxCallID is the longest id of a call.
	MaxCallID = 128

	// MaxHello bounds the first frame, which may come from a stranger.
	MaxHello = 1 << 20
)

// Kind is the type of a message. See the package comment for the table.
type Kind uint8

const (
	// From the daemon.
	KindHello Kind = iota + 1
	KindPrepare
	KindRun
	KindResume
	KindCredit
	KindGrant
	KindDetach
	KindAck
	KindForget
	KindAbort
	KindFreeTmp
	KindPing
	KindInput
)

const (
	// From the agent.
	KindWelcome Kind = iota + 64
	KindOutput
	KindMetadata
	KindOffer
	KindChunk
	KindDone
	KindDetached
	KindWant
)

// Head is the first item of every frame; the body is the rest of the frame.
type Head struct {
	_    struct{} `cbor:",toarray"`
	Kind Kind
	// ID names the exchange: the daemon counts up from 1 on each connection.
	// 0 where a message belongs to no exchange.
	ID uint64
	// N is an offset, a limit or a size, as the kind says.
	N int64
	// Flag is: stderr (output), the last of it (input).
	Flag bool
}

// Hello is the body of KindHello.
type Hello struct {
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

// Welcome is the body of KindWelcome.
type Welcome struct {
	Version string      `cbor:"1,keyasint"`
	ForkTID int         `cbor:"2,keyasint"`
	Calls   []CallState `cbor:"3,keyasint"`
	Notes   []string    `cbor:"4,keyasint"`
}

// CallState is a call that the agent holds: whether it has ended, and the offsets of the
// output that can be sent.
type CallState struct {
	_        struct{} `cbor:",toarray"`
	ID       string
	Finished bool
	Base     int64
	End      int64
}

// Request is the body of KindPrepare and KindRun.
type Request struct {
	CallID        string    `cbor:"1,keyasint"`
	Tool          string    `cbor:"2,keyasint"`
	Input         []byte    `cbor:"3,keyasint"`
	Settings      []byte    `cbor:"4,keyasint,omitempty"`
	Env           []string  `cbor:"5,keyasint,omitempty"`
	TimeoutMillis int64     `cbor:"6,keyasint,omitempty"`
	MaxOutput     int64     `cbor:"7,keyasint,omitempty"`
	Prepared      *Prepared `cbor:"8,keyasint,omitempty"`
	Split         bool      `cbor:"9,keyasint,omitempty"`
	Expect        *[]string `cbor:"10,keyasint,omitempty"`
	Paths         []string  `cbor:"11,keyasint,omitempty"`
}

// Size is how many bytes of memory the request takes while it is worked on.
func (r *Request) Size() int64 {
	n := len(r.Input) + len(r.Settings)
	lists := [][]string{r.Env, r.Paths}
	if r.Expect != nil {
		lists = append(lists, *r.Expect)
	}
	for _, list := range lists {
		for _, s := range list {
			n += len(s)
		}
	}
	if p := r.Prepared; p != nil {
		n += len(p.Diff) + len(p.State)
		if p.Result != nil {
			n += len(p.Result.Output) + len(p.Result.Metadata)
		}
	}
	return int64(n)
}

// Abort is the body of KindAbort.
type Abort struct {
	CallID string `cbor:"1,keyasint"`
	Reason string `cbor:"2,keyasint"`
}

// Done is the body of KindDone. For Prepare, Run and Resume the payload (a
// prepared or a result) stands in Payload or was sent in chunks before.
type Done struct {
	Err       *run.Error      `cbor:"1,keyasint,omitempty"`
	Refused   Refusal         `cbor:"2,keyasint,omitempty"`
	Exit      *run.Exit       `cbor:"3,keyasint,omitempty"`
	OutputEnd int64           `cbor:"4,keyasint,omitempty"`
	Payload   cbor.RawMessage `cbor:"5,keyasint,omitempty"`
	// NotRun: Run has not found what it was to expect; the payload is a prepared.
	NotRun bool `cbor:"6,keyasint,omitempty"`
}

// Refusal says why an agent did not take up a call at all.
type Refusal uint8

const (
	RefusedUnknown   Refusal = iota + 1 // no such call
	RefusedDuplicate                    // Run of a call that the agent holds
	RefusedOffset                       // Resume from an offset that is gone
)

// Result is run.Result on the wire. Metadata stays encoded until its size has
// been checked: its values expand when they are decoded, strings do not.
type Result struct {
	Title       string           `cbor:"1,keyasint,omitempty"`
	Output      string           `cbor:"2,keyasint,omitempty"`
	IsError     bool             `cbor:"3,keyasint,omitempty"`
	Metadata    cbor.RawMessage  `cbor:"4,keyasint,omitempty"`
	Attachments []run.Attachment `cbor:"5,keyasint,omitempty"`
	Quote       string           `cbor:"6,keyasint,omitempty"`
}

// Prepared is run.Prepared on the wire.
type Prepared struct {
	Targets []run.Target `cbor:"1,keyasint,omitempty"`
	Diff    string       `cbor:"2,keyasint,omitempty"`
	Result  *Result      `cbor:"3,keyasint,omitempty"`
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

// codecs is the one codec; its modes are immutable.
var codecs = newCodec()

// Marshal encodes the body of a message.
func Marshal(v any) ([]byte, error) { return codecs.enc.Marshal(v) }

// Unmarshal decodes the body of a message into v, which is a pointer. It keeps to what
// the protocol allows; what v says may still be anything.
func Unmarshal(body []byte, v any) error { return codecs.dec.Unmarshal(body, v) }

// appendHead appends the encoding of h, the only CBOR that is written by hand,
// because every chunk of output begins with one.
func appendHead(b []byte, h Head) []byte {
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

// ParseFrame splits a frame into its head and its body.
func ParseFrame(frame []byte) (h Head, body []byte, err error) {
	body, err = codecs.dec.UnmarshalFirst(frame, &h)
	return h, body, err
}

// EncodeResult makes the wire form of r.
func EncodeResult(r *run.Result) *Result {
	if r == nil {
		return nil
	}
	return &Result{
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
	all, err := Marshal(metadata)
	if err == nil && len(all) <= MaxMetadata {
		return all
	}
	const room = 4 << 10 // for the note
	parts, size := make(map[string]any, len(metadata)), 0
	var left []string
	for name, value := range metadata {
		part, err := Marshal(value)
		if err != nil {
			left = append(left, fmt.Sprintf("%s (%v)", name, err))
			continue
		}
		parts[name] = cbor.RawMessage(part)
		size += len(name) + len(part) + 16
	}
	for size > MaxMetadata-room {
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
	text := "left out: " + strings.Join(left, ", ") + fmt.Sprintf("; metadata is at most %d bytes", MaxMetadata)
	parts["metadata_error"] = strings.ToValidUTF8(text[:min(len(text), room/2)], "")
	all, _ = Marshal(parts) // of parts that were encoded
	return all
}

// EncodePrepared makes the wire form of p.
func EncodePrepared(p *run.Prepared) *Prepared {
	if p == nil {
		return nil
	}
	return &Prepared{Targets: p.Targets, Diff: p.Diff, Result: EncodeResult(p.Result), State: p.State}
}

// EncodeUpdate encodes metadata of a call that runs. An error is metadata that the other
// end would not take.
func EncodeUpdate(m map[string]any) ([]byte, error) {
	b, err := Marshal(m)
	switch {
	case err != nil:
		return nil, err
	case len(b) > MaxProgress:
		return nil, fmt.Errorf("metadata of %d bytes; the limit is %d", len(b), MaxProgress)
	}
	return b, codecs.update.Wellformed(b)
}

// DecodeUpdate decodes metadata of a call that runs.
func DecodeUpdate(raw []byte) (map[string]any, error) {
	var m map[string]any
	if err := codecs.update.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	return cleanMap(m), nil
}

// decodeMetadata bounds and decodes metadata of a result.
func decodeMetadata(raw []byte) (map[string]any, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if len(raw) > MaxMetadata {
		return nil, fmt.Errorf("metadata of %d bytes; the limit is %d", len(raw), MaxMetadata)
	}
	var m map[string]any
	if err := Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	return cleanMap(m), nil
}

// DecodeResult is the opposite of EncodeResult, with bounds, and texts made valid.
func DecodeResult(w *Result) (*run.Result, error) {
	if w == nil {
		return nil, nil
	}
	m, err := decodeMetadata(w.Metadata)
	if err != nil {
		return nil, err
	}
	for i := range w.Attachments {
		a := &w.Attachments[i]
		a.Filename, a.MIME = Clean(a.Filename), Clean(a.MIME)
	}
	return &run.Result{
		Title: Clean(w.Title), Output: Clean(w.Output), IsError: w.IsError,
		Metadata: m, Attachments: w.Attachments, Quote: Clean(w.Quote),
	}, nil
}

// DecodePrepared is the opposite of EncodePrepared, with bounds, and texts made valid.
func DecodePrepared(w *Prepared) (*run.Prepared, error) {
	if w == nil {
		return nil, nil
	}
	r, err := DecodeResult(w.Result)
	if err != nil {
		return nil, err
	}
	if len(w.Diff) > run.MaxDiff+4096 {
		return nil, fmt.Errorf("diff of %d bytes; the limit is %d", len(w.Diff), run.MaxDiff)
	}
	if len(w.State) > 0 && !json.Valid(w.State) {
		return nil, fmt.Errorf("state of %d bytes is not JSON", len(w.State))
	}
	return &run.Prepared{Targets: w.Targets, Diff: Clean(w.Diff), Result: r, State: w.State}, nil
}

// Resume is the body of KindResume.
type Resume struct {
	CallID string `cbor:"1,keyasint"`
	Offset int64  `cbor:"2,keyasint"`
}
