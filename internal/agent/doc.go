// Package agent is the daemon's end of the control protocol, which package wire
// specifies: a Conn for each session's agent, the process that is PID 1 of every
// sandbox.
//
// Everything that comes from the agent is taken as hostile: a tool that took the agent
// over must not get further than its own session. What breaks the protocol ends the
// connection with ErrViolation, figures that cannot be are clamped, texts are made
// valid, and all that waits here has a bound.
package agent
