package store

import (
	"testing"
)

func FuzzJournal(f *testing.F) {
	file, _ := testJournal(f, testPayloads()...)
	f.Add(file[journalHeader:])
	f.Add(file[journalHeader : len(file)-5])
	f.Fuzz(func(t *testing.T, b []byte) {
		whole, err := checkFrames(b)
		if whole < 0 || whole > len(b) {
			t.Fatalf("%d of %d bytes", whole, len(b))
		}
		if again, err2 := checkFrames(b[:whole]); again != whole || err == nil && err2 != nil {
			t.Fatalf("%d whole bytes, and of these %d, %v", whole, again, err2)
		}
	})
}

func FuzzRecord(f *testing.F) {
	for _, p := range testPayloads() {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for len(b) > 0 {
			r, rest, err := decodeRecord(b)
			if err != nil {
				return
			}
			if len(rest) >= len(b) {
				t.Fatal("nothing was read")
			}
			if size := len(r.call.input) + len(r.call.result) + len(r.event.data); size > len(b) {
				t.Fatalf("%d bytes out of %d", size, len(b))
			}
			b = rest
		}
	})
}
