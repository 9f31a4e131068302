package tool

import (
	_ "embed"

	"github.com/toold/toold/client"
)

//go:embed todowrite.md
var todowriteDescription string

// Bounds of a list of tasks: it is in every answer about its session.
const (
	maxTodos    = 100
	maxTodoText = 500
	maxTodoID   = 64
)

func todowriteTool() *Definition {
	return &Definition{
		Name:        "todowrite",
		Description: todowriteDescription,
		By:          ByDaemon,
		alike:       []string{"todo"},
		also: aliases{
			tools:   []string{"writetodos", "updateplan"},
			fields:  map[string]string{"plan": "todos", "explanation": "", "todos/step": "content", "todos/description": "content", "todos/activeForm": ""},
			rewrite: todoAliases, rewrites: []string{"texts"},
		},
		Traits:   Traits{Idempotent: true, NoSlot: true},
		Truncate: truncateHead,
		decode:   someTodos,
		input: object(
			required("todos", listOf(object(
				required("content", text(1, maxTodoText, "What is to be done, in one line.")),
				required("status", choice("How far it is.", client.TodoPending, client.TodoInProgress, client.TodoCompleted, client.TodoCancelled)),
				optional("priority", choice("How much it matters. The default is medium.", "high", "medium", "low")),
				optional("id", text(0, maxTodoID, "A name of your own for the task.")),
			), maxTodos, "The whole list, in order. It takes the place of the one before; an empty one clears it.")),
		),
	}
}

// todoAliases takes tasks that are texts alone.
func todoAliases(v values) (used []string) {
	for _, name := range []string{"todos", "plan"} {
		list, _ := v[name].([]any)
		for i, item := range list {
			if text, ok := item.(string); ok {
				list[i], used = map[string]any{"content": text, "status": client.TodoPending}, []string{"texts"}
			}
		}
	}
	return used
}

// TodoWrite is the input of todowrite.
type TodoWrite struct{ Todos []client.Todo }

func someTodos(v values) Input {
	in := &TodoWrite{Todos: []client.Todo{}}
	list, _ := v["todos"].([]any)
	for _, item := range list {
		t, _ := item.(map[string]any) // the schema wants objects
		f := values(t)
		in.Todos = append(in.Todos, client.Todo{ID: f.text("id"), Content: f.text("content"), Status: f.text("status"), Priority: f.text("priority")})
	}
	return in
}

// Access implements Input.
func (in *TodoWrite) Access(*Reader) Access { return asWhole(PermissionTodoWrite) }
