// Package mcp serves the tools of one session by the Model Context Protocol, for agents
// that speak nothing else.
//
// It speaks to the daemon through package client, in toolctl as in the daemon itself: a
// request of an agent can do what the credential of that client can, and no more.
//
// An agent's mistakes are results that say is_error, so that a model reads them and does
// better: a wrong name, an input that breaks its schema, a denial, a session that is
// lost. An error of the protocol is left for requests that are none.
//
// A call goes on when its answer does not wait for it: past Config.Wait the answer has the
// output so far and the call's id, and the tool WaitTool takes it further. A request that
// is cancelled, or whose client goes away, aborts its call, and ends when the call has.
package mcp
