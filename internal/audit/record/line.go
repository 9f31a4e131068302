package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The parts of a line around its body.
const (
	beforeSeq  = `{"seq":`
	beforePrev = `,"prev":"`
	beforeHash = `,"hash":"`
	lineEnd    = `"}`
	hashLen    = 2 * sha256.Size
	tailLen    = len(beforeHash) + hashLen + len(lineEnd)
	maxSeqLen  = 20
)

// ErrTooLong is for what does not fit into a line.
var ErrTooLong = errors.New("longer than a line of the log may be")

// Encode makes of a body what AppendLine wants: its members as ASCII.
func Encode(b *Body) ([]byte, error) {
	text, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encode a record: %w", err)
	}
	members := appendASCII(make([]byte, 0, len(text)+64), text[1:len(text)-1])
	if len(members)+len(beforeSeq)+maxSeqLen+len(beforePrev)+hashLen+2+tailLen+1 > MaxLine {
		return nil, ErrTooLong
	}
	return members, nil
}

// AppendLine appends the line of a record, with its end, and gives its hash.
// members come from Encode.
func AppendLine(dst []byte, seq uint64, prev string, members []byte) (line []byte, hash string) {
	at := len(dst)
	dst = append(append(dst, head(seq, prev)...), members...)
	sum := sha256.Sum256(dst[at:])
	hash = hex.EncodeToString(sum[:])
	return append(append(dst, tail(hash)...), '\n'), hash
}

// head and tail are what stands around the members of a record.
func head(seq uint64, prev string) string {
	return beforeSeq + strconv.FormatUint(seq, 10) + beforePrev + prev + `",`
}

func tail(hash string) string { return beforeHash + hash + lineEnd }

// appendASCII appends JSON text with everything but printable ASCII as \u
// escapes. Such characters can only stand inside strings there. Bytes that are
// no UTF-8 do not come out of package json.
func appendASCII(dst, text []byte) []byte {
	const hexDigits = "0123456789abcdef"
	unit := func(r rune) {
		dst = append(dst, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
	}
	for i := 0; i < len(text); {
		c := text[i]
		if c >= ' ' && c < 0x7f {
			dst = append(dst, c)
			i++
			continue
		}
		r, n := utf8.DecodeRune(text[i:])
		i += n
		if r < 0x10000 {
			unit(r)
			continue
		}
		r -= 0x10000
		unit(0xd800 + r>>10)
		unit(0xdc00 + r&0x3ff)
	}
	return dst
}

// Decode reads one line, without its end, and checks its form and its own hash.
// The bytes may be anything. With an error that is ErrChanged the record is
// given as well: it is one in form.
func Decode(line []byte) (*Record, error) {
	if len(line) >= MaxLine {
		return nil, ErrTooLong
	}
	for i, c := range line {
		if c < ' ' || c >= 0x7f {
			return nil, fmt.Errorf("byte %d is not a printable ASCII character", i+1)
		}
	}
	var r Record
	dec := json.NewDecoder(bytes.NewReader(line))
	if err := dec.Decode(&r); err != nil {
		return nil, fmt.Errorf("it is not a record: %w", err)
	}
	if dec.InputOffset() != int64(len(line)) {
		return nil, errors.New("something follows the record")
	}
	// The members that the chain is made of count as they stand at both ends; a second
	// one of the same name must not speak for them.
	h, t := head(r.Seq, r.Prev), tail(r.Hash)
	if r.Seq == 0 || len(line) < len(h)+len(t) || !strings.HasPrefix(string(line), h) || !strings.HasSuffix(string(line), t) {
		return nil, errors.New("it does not begin with seq and prev and end with its hash, or one of them stands twice")
	}
	sum := sha256.Sum256(line[:len(line)-len(t)])
	if hex.EncodeToString(sum[:]) != r.Hash {
		return &r, ErrChanged
	}
	return &r, nil
}

// ErrChanged is for a record whose text does not have the hash that it says.
var ErrChanged = errors.New("the text of this record is not what was written: its hash does not fit")
