package session

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call/local"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// tasks is the list of tasks of a session. It is in the session's row. A checkpoint of the
// worktree has the call that wrote the list of its time.
type tasks struct{ s *Session }

// tools are the tools that write and show the list.
func (t tasks) tools() []local.Tool {
	return []local.Tool{local.Of(nil, t.writeTool), local.Of(nil, t.readTool)}
}

func (t tasks) writeTool(_ context.Context, in *tool.TodoWrite, out *local.Out) (*run.Result, error) {
	if err := t.set(store.Tasks{Call: out.Call, List: in.Todos}, out.Call); err != nil {
		return nil, err
	}
	return shownTasks(in.Todos), nil
}

func (t tasks) readTool(context.Context, *tool.TodoRead, *local.Out) (*run.Result, error) {
	return shownTasks(t.s.Row().Tasks.List), nil
}

// set stores a list, and tells of it if it is another one. call is the call that did so, ""
// for none.
func (t tasks) set(list store.Tasks, call string) error {
	var old []client.Todo
	return t.s.writeTelling(func(r *store.Session) error { old, r.Tasks = r.Tasks.List, list; return nil },
		func(r *store.Session) []client.Event {
			if slices.Equal(old, r.Tasks.List) {
				return nil
			}
			return []client.Event{event.New(client.EventTodoUpdated, t.s.tenant.Name, t.s.id, call, client.CountTodos(r.Tasks.List))}
		})
}

// Tasks implements trees.Live.
func (s *Session) Tasks() string { return s.Row().Tasks.Call }

// RestoreTasks implements trees.Live.
func (s *Session) RestoreTasks(ctx context.Context, call string) error {
	list := store.Tasks{Call: call}
	if call != "" {
		row, err := s.daemon.store.Call(ctx, call)
		if err != nil {
			return fmt.Errorf("read the call that wrote the list of tasks: %w", err)
		}
		inv, err := s.daemon.tools.ParseHidden(row.Tool, row.Input)
		if err != nil {
			return fmt.Errorf("read the list of tasks of call %s: %w", call, err)
		}
		in, ok := inv.Input.(*tool.TodoWrite)
		if !ok {
			return fmt.Errorf("read the list of tasks of call %s: it is a call of another tool", call)
		}
		list.List = in.Todos
	}
	return tasks{s}.set(list, "")
}

// shownTasks is a list as models read it.
func shownTasks(list []client.Todo) *run.Result {
	n := client.CountTodos(list)
	open := n.Pending + n.InProgress
	r := &run.Result{
		Title:    fmt.Sprintf("%d of %d tasks open", open, n.Total),
		Metadata: map[string]any{"open": open, "total": n.Total},
	}
	if n.Total == 0 {
		r.Output = "The list of tasks is empty."
		return r
	}
	var b strings.Builder
	for _, t := range list {
		fmt.Fprintf(&b, "[%s] %s", signOf(t.Status), plain.Line(t.Content))
		if t.Priority != "" && t.Priority != "medium" {
			fmt.Fprintf(&b, " (%s)", t.Priority)
		}
		if t.ID != "" {
			fmt.Fprintf(&b, " #%s", plain.Line(t.ID))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "(%s)", r.Title)
	if n.InProgress > 1 {
		fmt.Fprintf(&b, "\n(%d tasks are in_progress; better have one at a time)", n.InProgress)
	}
	r.Output = b.String()
	return r
}

// signOf is a status in one letter.
func signOf(status string) string {
	switch status {
	case client.TodoCompleted:
		return "x"
	case client.TodoInProgress:
		return ">"
	case client.TodoCancelled:
		return "-"
	}
	return " "
}
