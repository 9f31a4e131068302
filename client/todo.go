package client

// Todo is one task on the list that a session's agent keeps. Its texts are the agent's.
type Todo struct {
	ID       string `json:"id,omitempty"`
	Content  string `json:"content"`
	Status   string `json:"status"`             // pending, in_progress, completed, cancelled
	Priority string `json:"priority,omitempty"` // high, medium, low
}

// The statuses of a Todo.
const (
	TodoPending    = "pending"
	TodoInProgress = "in_progress"
	TodoCompleted  = "completed"
	TodoCancelled  = "cancelled"
)

// EventTodoUpdated says that the list of a session has changed; data is TodoCounts.
const EventTodoUpdated = "todo.updated"

// TodoCounts is how many tasks of each status a list has.
type TodoCounts struct {
	Total      int `json:"total"`
	Pending    int `json:"pending"`
	InProgress int `json:"in_progress"`
	Completed  int `json:"completed"`
	Cancelled  int `json:"cancelled"`
}

// CountTodos counts.
func CountTodos(list []Todo) TodoCounts {
	c := TodoCounts{Total: len(list)}
	for _, t := range list {
		switch t.Status {
		case TodoPending:
			c.Pending++
		case TodoInProgress:
			c.InProgress++
		case TodoCompleted:
			c.Completed++
		case TodoCancelled:
			c.Cancelled++
		}
	}
	return c
}
