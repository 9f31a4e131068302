// Package agent is both ends of the control protocol between toold and the
// agent, the process that is PID 1 of every sandbox: Conn is the daemon's end,
// Server the agent's.
//
// The whole protocol is specified here, message by message, with what happens
// when a side breaks it. (To be completed with the code.)
package agent
