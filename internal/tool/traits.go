package tool

// Traits are what the rest of the house must know of a tool. It asks for them, and never
// for a name. They hold whatever the input is; the zero value is a tool that runs no
// program, adds things to the session, and is a call like any other.
type Traits struct {
	// ReadOnly tools change nothing. The worktree gets no checkpoint before them.
	ReadOnly bool
	// Destructive tools may overwrite or remove what is there. Others only add.
	Destructive bool
	// Idempotent: the same call again changes nothing more.
	Idempotent bool
	// OpenWorld: it may reach beyond the session, as far as the session's network allows.
	OpenWorld bool
	// Polling tools look for news. To make the same call again is no loop, up to the hard
	// limit of [doom_loop].
	Polling bool
	// NoSlot: its calls take no slot of the session, since others do the work.
	NoSlot bool
	// OwnDeadline: limits.wall does not end its calls.
	OwnDeadline bool
	// Command tools run a program: their answers say how it ended, and a limit of the session
	// may have been why.
	Command bool
}

// changes is a tool that changes files in a way that it could not undo.
var changes = Traits{Destructive: true}

// looks is a tool that only looks: to do so twice is as good as once.
var looks = Traits{ReadOnly: true, Idempotent: true}
