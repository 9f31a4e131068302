package store

import (
	"crypto/rand"
	"encoding/base32"
	"strings"
	"sync/atomic"
	"time"
)

// An id is its kind, 12 characters of time and 16 of randomness: 60 bits of
// ticks of 16 ns since 1970 (good for 584 years) and 80 unguessable bits.
// The alphabet is in the order of its bytes, so ids sort by when they were made.
const (
	idAlphabet = "0123456789abcdefghijklmnopqrstuv"
	idTicks    = 12
	idRandom   = 16
	idLen      = idTicks + idRandom
)

var idEncoding = base32.NewEncoding(idAlphabet).WithPadding(base32.NoPadding)

// IDs makes ids that strictly increase, also when the clock is set back.
type IDs struct {
	last atomic.Uint64 // the tick of the newest id
}

// NewIDs makes ids that sort after the given one, "" for none.
func NewIDs(after string) *IDs {
	g := &IDs{}
	g.last.Store(ticks(after))
	return g
}

// New makes an id with kind as its prefix, e.g. New("ses_").
func (g *IDs) New(kind string) string {
	tick := uint64(time.Now().UnixNano()) >> 4
	for {
		last := g.last.Load()
		tick = max(tick, last+1)
		if g.last.CompareAndSwap(last, tick) {
			break
		}
	}
	var b [len("call_") + idLen]byte
	id := appendTicks(append(b[:0], kind...), tick)
	var random [10]byte
	// rand.Read does not return without randomness: the process ends instead.
	_, _ = rand.Read(random[:])
	return string(idEncoding.AppendEncode(id, random[:]))
}

// idAt is below every id of this kind that is made from t on, and above those
// that were made before.
func idAt(kind string, t time.Time) string {
	return string(appendTicks([]byte(kind), uint64(t.UnixNano())>>4))
}

func appendTicks(b []byte, tick uint64) []byte {
	for shift := 55; shift >= 0; shift -= 5 {
		b = append(b, idAlphabet[tick>>shift&31])
	}
	return b
}

// ValidID reports whether s has the form of an id of this kind. It says nothing
// about whether there is such a thing.
func ValidID(kind, s string) bool {
	rest, ok := strings.CutPrefix(s, kind)
	if !ok || len(rest) != idLen {
		return false
	}
	for i := range len(rest) {
		if strings.IndexByte(idAlphabet, rest[i]) < 0 {
			return false
		}
	}
	return true
}

// ticks reads the time part of an id, 0 when it has none.
func ticks(id string) uint64 {
	_, rest, ok := strings.Cut(id, "_")
	if !ok || len(rest) != idLen {
		return 0
	}
	var t uint64
	for i := range idTicks {
		d := strings.IndexByte(idAlphabet, rest[i])
		if d < 0 {
			return 0
		}
		t = t<<5 | uint64(d)
	}
	return t
}
