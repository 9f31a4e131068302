package mount

import (
	"errors"
	"strings"
	"testing"
)

// TestWeldLed: what is led to from paths that are too long together is not made one.
func TestWeldLed(t *testing.T) {
	w := &weld{room: maxWeldLed}
	place := strings.Repeat("d/", maxWeldLed/2) + "d"
	if err := w.marks(-1, place, &looked{name: "/d"}); !errors.Is(err, ErrWeld) || len(w.led) > 0 {
		t.Errorf("%v, %d are kept", err, len(w.led))
	}
}
