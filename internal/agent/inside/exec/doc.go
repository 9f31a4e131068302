// Package exec runs the programs of a session's tools in its sandbox: it starts them,
// finds all that they start, bills it, and ends it. Only the agent links it.
//
// All programs of tools are started by one thread, the fork thread, which the
// daemon puts under the tools' limits once; the agent's other threads stay
// outside, so that a tool that uses up its memory or its processes does not take
// the agent with it. Each program gets a cgroup below the directory from hello,
// in which it is born; at its end that cgroup is killed, and removed or, when it
// was empty by itself, kept for the next program. Between fork
// and exec the child takes limits, a Landlock domain, the tool user's ids and a
// second seccomp filter; see forkexec.go and filter.go.
//
// # Shells that wait
//
// After a command, a shell is started for the next one; see waiting.go for how it
// gets its command, shells.go for when there is one. It waits at most half a
// minute, is used once, and never lives beside a program: what earlier calls have
// started is gone before its first instruction, and it is killed before anything
// else is started. So nothing of one call can reach another by
// it, with or without Landlock. A command is given to it only when it goes to the
// session's shell (bash --noprofile --norc), in the worktree, with the session's
// environment, one stream, and has less than 8 KiB; where anything fails a fresh
// shell runs the command.
//
// A program cannot tell such a shell from a fresh one, but for this: NUL bytes
// stand behind the last argument in /proc/PID/cmdline, and behind the last variable
// in its environ; and a listing of all variables (set, declare -p) shows SECONDS,
// PIPESTATUS and an element of BASH_ARGC, which bash otherwise makes when they are
// used for the first time. PIDs and start times are those of the start.
package exec
