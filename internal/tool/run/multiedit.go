package run

// MultiEdit is the tool that makes several edits of one file: in order, each of what those
// before it leave, all of them or none.
type MultiEdit = editor[multiEditInput]

type multiEditInput struct {
	Edits []editInput `json:"edits"`
}

func (multiEditInput) tool() string          { return "multiedit" }
func (in multiEditInput) edits() []editInput { return in.Edits }
