package answer

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
)

func TestOf(t *testing.T) {
	own := &client.Error{Code: client.CodeDenied, Message: "no", Violations: []client.Violation{{Path: "a"}}}
	for _, tt := range []struct {
		err  error
		want *client.Error
	}{
		{nil, nil},
		{errors.New("ours"), nil},
		{fmt.Errorf("around: %w", own), own},
		{
			fmt.Errorf("around: %w", fault.Conflict.Errorf("it is there").Next("leave it").At([]fault.Place{{Path: "a", Message: "here"}})),
			&client.Error{Code: client.CodeConflict, Message: "it is there", Hint: "leave it", Violations: []client.Violation{{Path: "a", Message: "here"}}},
		},
	} {
		if got := Of(tt.err); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%v: got %+v, want %+v", tt.err, got, tt.want)
		}
	}
}
