// Package inside is the agent's end of the control protocol, which package wire
// specifies: a Server takes one daemon at a time, and runs its calls as the tool user.
// A call belongs to the agent and not to a connection: it goes on without a daemon.
//
// The agent is PID 1 of a sandbox whose tools may be hostile, to it too. Only
// toolagent links this package. Package exec starts the programs.
package inside
