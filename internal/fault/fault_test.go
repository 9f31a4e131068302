package fault

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
)

// TestError: an error is of its kind and of its cause, says all that it has, and is found
// behind what was said around it.
func TestError(t *testing.T) {
	err := fmt.Errorf("around: %w", NotFound.Errorf("no file %q: %w", "a", fs.ErrNotExist).Next("make one"))
	if !errors.Is(err, NotFound) || !errors.Is(err, fs.ErrNotExist) || errors.Is(err, Conflict) {
		t.Errorf("%v: of another kind or cause", err)
	}
	if e, ok := errors.AsType[*Error](err); !ok || e.Err.Error() != `no file "a": file does not exist` {
		t.Errorf("%v: %v", err, e)
	}
	if want := `around: not_found: no file "a": file does not exist (make one)`; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	if got, want := Conflict.Errorf("it is there").Error(), "conflict: it is there"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
