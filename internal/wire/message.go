package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
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
	KindFreeTmp // N: only if so many bytes are in them
	KindPing
	KindInput
	KindHold
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

// Hello is what the daemon tells the agent when it connects: the body of KindHello. All but
// the nonce and the descriptors configures the session; the agent takes it from the first
// connection and ignores it on later ones.
type Hello struct {
	Version   int      `cbor:"1,keyasint"` // of the protocol
	Nonce     []byte   `cbor:"2,keyasint"`
	Worktree  string   `cbor:"3,keyasint"`
	Home      string   `cbor:"4,keyasint"`
	Tmp       string   `cbor:"5,keyasint"`
	OutputDir string   `cbor:"6,keyasint"`
	ToolUID   int      `cbor:"7,keyasint"`
	ToolGID   int      `cbor:"8,keyasint"`
	Env       []string `cbor:"9,keyasint"`  // the tools' whole environment, KEY=VALUE
	Shell     []string `cbor:"10,keyasint"` // e.g. /bin/bash --noprofile --norc
	// Limits of one process, 0 = leave.
	OpenFiles int64 `cbor:"11,keyasint"`
	FileSize  int64 `cbor:"12,keyasint"`
	// UnackedBytes bounds what the agent keeps of one call's output for a daemon
	// that is away; past it the command waits.
	UnackedBytes int64 `cbor:"13,keyasint"`
	// OrphanMillis: the agent kills everything and exits when no daemon has been
	// connected for so long; 0 = never. For daemons that live for one command.
	OrphanMillis int64 `cbor:"14,keyasint"`
	HasCgroup    bool  `cbor:"15,keyasint"` // CallCgroup comes with this frame
	// Left out where they are 0, so that agents of before they came do not mind.
	// Memory and PIDs are limits of all tools together, for sandboxes in which
	// the agent keeps them (sandbox.SelfLimiting); 0 = it does not.
	Memory int64 `cbor:"16,keyasint,omitempty"`
	PIDs   int64 `cbor:"17,keyasint,omitempty"`
	// HeldCount of Held come with this frame, behind CallCgroup.
	HeldCount int `cbor:"18,keyasint,omitempty"`
	// Relay makes the agent pass on what tools connect to at its proxies' ports, by the
	// control directory.
	Relay bool `cbor:"19,keyasint,omitempty"`
	// Network is set for a session with a way out: calls are then written on their cgroups.
	Network bool `cbor:"20,keyasint,omitempty"`
	// Bounded are places besides Worktree, Home and Tmp that tools write to and that have a
	// bound: the agent says when one was full.
	Bounded []string `cbor:"21,keyasint,omitempty"`

	// CallCgroup, when not nil, is sent as a descriptor (see sandbox.Sandbox).
	CallCgroup *os.File `cbor:"-"`
	// Held are sockets for the agent to keep until a later hello brings others: the daemon's
	// listeners in the sandbox, whose ports no tool may take while no daemon runs. At most
	// MaxHeld. They are sent as descriptors.
	Held []*os.File `cbor:"-"`
	// Room, which is not sent, is asked before bytes of a large result of a call
	// are let into memory, and waits until they may come. gone is closed when the
	// connection ends. nil lets all of them come.
	Room func(ctx context.Context, gone <-chan struct{}, callID string, bytes int64) error `cbor:"-"`
}

// MaxHeld bounds Hello.Held; the kernel passes 253 descriptors at once.
const MaxHeld = 128

// What an agent knows besides the first version of the protocol, as bits of the welcome's n. An
// agent of before has none of them, and a daemon of before does not look.
const (
	KnowsHold = 1 << iota
	// KnowsUnseen: it can keep directories from programs (Request.Unseen). Of an agent that
	// knows how, but whose kernel has no means, the bit is not set.
	KnowsUnseen
)

// ToolsShift is where in the welcome's n the fingerprint of the agent's tools begins (see
// run.Fingerprint); 0 in that of an agent of before, which may have fewer.
const ToolsShift = 16

// Welcome is the body of KindWelcome.
type Welcome struct {
	Version string `cbor:"1,keyasint"` // the agent's
	// ForkTID is the thread id, in the sandbox, of the thread that starts all
	// processes of tools.
	ForkTID int `cbor:"2,keyasint"`
	// Calls are those that the agent still holds: running, or finished and not
	// yet forgotten.
	Calls []CallState `cbor:"3,keyasint"`
	// Notes say which defences this kernel did not give (Landlock …).
	Notes []string `cbor:"4,keyasint"`

	// Tools is the fingerprint of the agent's tools, from the frame's n; 0 where it does not say.
	Tools uint32 `cbor:"-"`
	// Hides is KnowsUnseen of the frame's n.
	Hides bool `cbor:"-"`
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

// Request asks for Prepare or Run of a call: the body of KindPrepare and KindRun.
type Request struct {
	CallID   string   `cbor:"1,keyasint"`
	Tool     string   `cbor:"2,keyasint"`
	Input    []byte   `cbor:"3,keyasint"`           // JSON
	Settings []byte   `cbor:"4,keyasint,omitempty"` // likewise
	Env      []string `cbor:"5,keyasint,omitempty"` // added to the session's environment, for this call
	// TimeoutMillis bounds Run; 0 = no bound of the agent's own.
	TimeoutMillis int64 `cbor:"6,keyasint,omitempty"`
	// MaxOutput is the number of streamed bytes after which the call is killed
	// with reason output_limit; 0 = none.
	MaxOutput int64         `cbor:"7,keyasint,omitempty"`
	Prepared  *run.Prepared `cbor:"8,keyasint,omitempty"` // for Run only
	// Split sends stdout and stderr as two streams with their offsets; order
	// between them is then only as good as the agent's reads.
	Split bool `cbor:"9,keyasint,omitempty"`
	// Expect, when not nil, makes Run prepare first. Where the targets resolve to
	// exactly these paths, in order, it goes on with what it has prepared; else
	// nothing is run, and the outcome is what Prepare saw or why it failed.
	// For Run only, and not with Prepared.
	Expect []string `cbor:"10,keyasint"`
	// Paths are further paths to resolve for Prepare of bash (see run.Env).
	Paths []string `cbor:"11,keyasint,omitempty"`
	// Unseen are directories, absolute and without links, in which programs of the call can neither read
	// nor list, write, make, run or remove anything; nor can they list those above. Only for an agent that KnowsUnseen.
	Unseen []string `cbor:"12,keyasint,omitempty"`

	// Typed is Input as the daemon has decoded it, for who runs calls in the daemon. It is
	// not sent.
	Typed any `cbor:"-"`
	// Body is what the tool reads as its run.Env.Input, as much as it wants; nil: nothing.
	// For Run only, which closes it when any of it was read; a Read that waits must return
	// then. It does not outlive its connection.
	Body io.ReadCloser `cbor:"-"`
}

// Size is how many bytes of memory the request takes while it is worked on.
func (r *Request) Size() int64 {
	n := len(r.Input) + len(r.Settings)
	for _, list := range [][]string{r.Env, r.Paths, r.Expect, r.Unseen} {
		for _, s := range list {
			n += len(s)
		}
	}
	if p := r.Prepared; p != nil {
		n += len(p.Diff) + len(p.State)
		if p.Result != nil {
			n += len(p.Result.Output) + len(p.Result.Encoded)
		}
	}
	return int64(n)
}

// Abort is the body of KindAbort.
type Abort struct {
	CallID string `cbor:"1,keyasint"`
	Reason string `cbor:"2,keyasint"`
}

// Done says how Prepare, Run or Resume ended: the body of KindDone. The payload (a prepared or
// a result) stands in Payload or was sent in chunks before. Once it is read, exactly one of
// Result, Err and Prepared is set.
type Done struct {
	Err       *run.Error      `cbor:"1,keyasint,omitempty"`
	Refused   Refusal         `cbor:"2,keyasint,omitempty"`
	Exit      *run.Exit       `cbor:"3,keyasint,omitempty"` // for tools that ran a program
	OutputEnd int64           `cbor:"4,keyasint,omitempty"` // bytes that the call streamed in all
	Payload   cbor.RawMessage `cbor:"5,keyasint,omitempty"`
	// NotRun: Run has not found what it was to expect; the payload is a prepared.
	NotRun bool `cbor:"6,keyasint,omitempty"`

	Result *run.Result `cbor:"-"`
	// Prepared is what Prepare saw; of Run, where that is not what Request.Expect says.
	Prepared *run.Prepared `cbor:"-"`
}

// Refusal says why an agent did not take up a call at all.
type Refusal uint8

const (
	RefusedUnknown   Refusal = iota + 1 // no such call
	RefusedDuplicate                    // Run of a call that the agent holds
	RefusedOffset                       // Resume from an offset that is gone
)

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

// appendHead appends the encoding of h.
func appendHead(b []byte, h Head) []byte {
	head, _ := Marshal(&h) // of numbers
	return append(b, head...)
}

// ParseFrame splits a frame into its head and its body.
func ParseFrame(frame []byte) (h Head, body []byte, err error) {
	body, err = codecs.dec.UnmarshalFirst(frame, &h)
	return h, body, err
}

// SealResult makes r, which may be nil, ready to be sent.
func SealResult(r *run.Result) *run.Result {
	if r != nil {
		r.Encoded = encodeMetadata(r.Metadata)
	}
	return r
}

// SealPrepared is SealResult for what Prepare saw.
func SealPrepared(p *run.Prepared) *run.Prepared {
	if p != nil {
		SealResult(p.Result)
	}
	return p
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

// OpenResult is the opposite of SealResult, with bounds, and texts made valid.
func OpenResult(r *run.Result) error {
	if r == nil {
		return nil
	}
	if len(r.Encoded) > MaxMetadata {
		return fmt.Errorf("metadata of %d bytes; the limit is %d", len(r.Encoded), MaxMetadata)
	}
	if len(r.Encoded) > 0 {
		if err := Unmarshal(r.Encoded, &r.Metadata); err != nil {
			return fmt.Errorf("metadata: %w", err)
		}
		cleanMap(r.Metadata)
	}
	r.Encoded = nil
	for i := range r.Attachments {
		a := &r.Attachments[i]
		a.Filename, a.MIME = Clean(a.Filename), Clean(a.MIME)
	}
	r.Title, r.Output, r.Quote = Clean(r.Title), Clean(r.Output), Clean(r.Quote)
	return nil
}

// OpenPrepared is the opposite of SealPrepared, with bounds, and texts made valid.
func OpenPrepared(p *run.Prepared) error {
	if p == nil {
		return nil
	}
	if len(p.Diff) > run.MaxDiff+4096 {
		return fmt.Errorf("diff of %d bytes; the limit is %d", len(p.Diff), run.MaxDiff)
	}
	if len(p.State) > 0 && !json.Valid(p.State) {
		return fmt.Errorf("state of %d bytes is not JSON", len(p.State))
	}
	p.Diff = Clean(p.Diff)
	return OpenResult(p.Result)
}

// Resume is the body of KindResume.
type Resume struct {
	CallID string `cbor:"1,keyasint"`
	Offset int64  `cbor:"2,keyasint"`
}
