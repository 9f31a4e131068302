// Package answer makes the API's errors of those inside, for answers and for the records of
// calls: one mapping for both.
package answer

import (
	"errors"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
)

// Of is the API's error for what those who asked can do something about, without what was
// said around it; nil for anything else.
func Of(err error) *client.Error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		e := &client.Error{Code: client.Code(f.Kind), Message: f.Err.Error(), Hint: f.Hint}
		for _, p := range f.Places {
			e.Violations = append(e.Violations, client.Violation(p))
		}
		return e
	}
	e, _ := errors.AsType[*client.Error](err)
	return e
}
