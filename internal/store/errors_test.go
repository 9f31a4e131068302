package store

import (
	"errors"
	"testing"
)

// TestErrors: writes that the disk refuses are counted, those that a caller or a
// constraint refuses are not.
func TestErrors(t *testing.T) {
	s := newTest(t)
	refused := errors.New("the caller's own")
	if err := s.Write(func(*Tx) error { return refused }); !errors.Is(err, refused) {
		t.Fatalf("got %v", err)
	}
	if err := s.Write(func(tx *Tx) error { return ErrExists }); !errors.Is(err, ErrExists) {
		t.Fatalf("got %v", err)
	}
	if err := s.Append(inserted(testCall(s, "ses_1", ""))); err != nil || s.Errors() != 0 {
		t.Fatalf("%v, %d errors, want none", err, s.Errors())
	}
	s.w.journal.mu.Lock()
	s.w.journal.refuse = ErrFull
	s.w.journal.mu.Unlock()
	if err := s.Append(inserted(testCall(s, "ses_1", ""))); !errors.Is(err, ErrFull) || s.Errors() != 1 {
		t.Errorf("%v, %d errors, want ErrFull and 1", err, s.Errors())
	}
}
