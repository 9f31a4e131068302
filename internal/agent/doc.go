// Package agent is the daemon's end of the control protocol, which package wire
// specifies: a Conn for each session's agent, the process that is PID 1 of every
// sandbox.
//
// Everything that comes from the agent is taken as hostile: a tool that took the agent
// over must not get further than its own session. A breach of the protocol ends the
// connection with ErrViolation, impossible numbers are clamped, texts are made valid,
// and every queue here has a bound.
package agent
