package textfile

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"unicode/utf16"
)

// TestDecoder: text in UTF-16, in whatever pieces it comes, is what the standard library makes of its units,
// without its mark.
func TestDecoder(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		units := []uint16{0xfeff}
		for range rnd.IntN(12) {
			units = append(units, []uint16{'a', 0xe9, 0x20ac, 0xd83d, 0xde00, 0xfeff, uint16(rnd.Uint32())}[rnd.IntN(7)])
		}
		for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
			var text []byte
			for _, u := range units {
				b := make([]byte, 2)
				order.PutUint16(b, u)
				text = append(text, b...)
			}
			want := string(utf16.Decode(units[1:]))
			odd := rnd.IntN(4) == 0 && units[len(units)-1] < 0xd800
			if odd {
				text, want = append(text, 'x'), want+"\uFFFD"
			}
			d, got := NewDecoder(order), []byte(nil)
			for rest := text; len(rest) > 0; {
				n := 1 + rnd.IntN(len(rest))
				got = append(got, d.Decode(rest[:n])...)
				rest = rest[n:]
			}
			if got = append(got, d.End()...); !bytes.Equal(got, []byte(want)) {
				t.Fatalf("%x is %q, want %q", units, got, want)
			}
		}
	}
}
