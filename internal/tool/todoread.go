package tool

import _ "embed"

//go:embed todoread.md
var todoreadDescription string

func todoreadTool() *Definition {
	return &Definition{
		Name:        "todoread",
		Description: todoreadDescription,
		By:          ByDaemon,
		alike:       []string{"readtodos", "todolist"},
		Traits:      Traits{ReadOnly: true, Idempotent: true, Polling: true, NoSlot: true},
		Truncate:    truncateHead,
		decode:      func(values) Input { return &TodoRead{} },
		input:       object(),
	}
}

// TodoRead is the input of todoread.
type TodoRead struct{}

// Access implements Input.
func (in *TodoRead) Access(*Reader) Access { return asWhole(PermissionTodoRead) }
