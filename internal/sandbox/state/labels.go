package state

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/toold/toold/internal/sandbox"
)

// Labels on containers. The names never change.
const (
	LabelOwner       = "toold.owner"
	labelSession     = "toold.session"
	labelIncarnation = "toold.incarnation"
	labelRuntime     = "toold.runtime"
	labelUIDBase     = "toold.uid-base"
)

// Labels gives the labels of a sandbox.
func Labels(r *sandbox.Record) map[string]string {
	return map[string]string{
		LabelOwner: r.Owner, labelSession: r.SessionID, labelIncarnation: r.Incarnation,
		labelRuntime: r.Runtime, labelUIDBase: strconv.FormatUint(uint64(r.UIDBase), 10),
	}
}

// Labelled reads a record from labels; they name no process.
func Labelled(l map[string]string) (*sandbox.Record, error) {
	if !IsName(l[labelSession]) || l[LabelOwner] == "" || l[labelIncarnation] == "" {
		return nil, errors.New("its labels do not say whose it is")
	}
	base, err := strconv.ParseUint(l[labelUIDBase], 10, 32)
	if err != nil {
		return nil, fmt.Errorf("label %s: %w", labelUIDBase, err)
	}
	return &sandbox.Record{
		ID:      sandbox.ID{SessionID: l[labelSession], Incarnation: l[labelIncarnation], Owner: l[LabelOwner], UIDBase: uint32(base)},
		Runtime: l[labelRuntime],
	}, nil
}
