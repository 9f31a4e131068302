// Package wire is the control protocol between toold and the agent, the process that
// is PID 1 of every sandbox: its frames, its messages and its bounds. Both ends link
// it: agent.Conn is the daemon's, inside.Server the agent's.
//
// The two do not trust each other equally. The agent does what a peer says that
// has shown the session's nonce. The daemon takes everything that comes from the
// agent as hostile: a tool that took the agent over must not get further than
// its own session.
//
// # Transport
//
// A stream Unix socket. The agent listens on a descriptor that it was born with;
// a daemon that was restarted connects again. Where a sandbox can be given no
// descriptors (gVisor, Docker) the agent dials the daemon's socket, and again
// whenever the connection is lost; from there on the two are the same, and the
// daemon is who shows the nonce. A frame is a length of four bytes,
// big-endian, and that many bytes: a head, which is a CBOR array
//
//	[kind, exchange, n, flag]
//
// and directly after it the body, whose form the kind decides. Frames from the
// agent have at most 128 KiB, from the daemon 17 MiB, the first one of a
// connection 1 MiB. The rest of a frame must follow its first byte within ten
// seconds. CBOR is strict: definite lengths, no tags, no key twice, no unknown
// field, 32 levels, 65,536 elements; metadata of a call that runs has at most 8
// levels, 1,024 elements of a list or map, and 16 KiB. Text may be invalid UTF-8,
// because names of files may; the daemon makes all text valid but paths.
//
// The daemon's end reads without room for control messages, so that descriptors
// that an agent sends never arrive. The agent takes the descriptors that the first
// frame counts, and closes all others.
//
// # Beginning
//
// The daemon sends hello: protocol version, nonce, and the settings of the
// session, which the agent takes from the first connection and ignores later;
// when call_cgroup is set, a descriptor of the directory below which calls have
// their cgroups comes with the first byte, and behind it the hello.held ones that
// the agent keeps until the next hello: listening sockets of the daemon's, whose
// ports no tool gets while no daemon runs. The next daemon takes duplicates out of
// the agent's process, and checks each: nothing of this protocol gives them. The agent closes connections that do
// not show the nonce within ten seconds, sixteen of them at a time. It answers
// with welcome: its version, the id of its fork thread, what it could not set
// up, and the calls that it holds. The newest connection that has shown the
// nonce is the daemon; the one before is closed.
//
// # Exchanges
//
// Each request of the daemon opens an exchange: a number that it counts up from
// 1 on each connection. All that answers it carries the number. There is exactly
// one last message of an exchange: done, or detached after detach.
//
//	from the daemon   exchange  n             body
//	hello             0         –             hello
//	prepare           new       –             request
//	run               new       credit        request
//	resume            new       credit        call id, offset
//	ping, free_tmp    new       –             –
//	credit            open      offset        –     output below offset may be sent
//	grant             open      –             –     the offered body may be sent
//	input             open      offset        bytes; flag: the end, bytes: why it is not whole
//	detach            open      –             –     nobody waits; a prepare is cancelled, a call goes on
//	ack               0         offset        call id   output below offset is durable
//	forget            0         –             call id   the outcome is durable
//	abort             0         –             call id, reason
//	hold              0         most          call id   its time stands still; most 0: it goes on
//
//	from the agent
//	welcome           0         knows         welcome
//	output            open      offset        bytes; flag: stderr
//	metadata          open      –             map   ten a second; the last one always comes
//	offer             open      size          –     a result over 64 KiB, at most 32 MiB
//	chunk             open      offset        bytes of the offered body, after grant
//	done              open      –             error, refusal, exit, end of output, result; or "not run" and what was prepared
//	detached          open      –             –
//	want              open      offset        –     input below offset may be sent
//
// A run whose request has the paths that its targets are expected to resolve to
// is prepared by the agent first, and goes on only when they do: a call that has
// been judged on that condition needs one exchange. Else nothing has been run and
// done brings what was prepared, to be judged.
//
// Hold is for a call that waits for a person. Its deadlines stand still until it goes on, or
// the connection is over, but end it at the latest so many milliseconds after its beginning. A daemon
// sends it only to an agent whose welcome says, by bits of its n, that it knows this: an
// agent that was born before goes on as it did.
//
// There is no verb by which an agent can ask for anything.
//
// Credit bounds what waits in the daemon for a sink that is slow: output beyond
// it may not be sent. It is given when the sink has taken output, so such a sink
// stops its own call and no other. Want is the same in the other direction, for the few
// tools that read what a client sends: the agent has room for 256 KiB of it. Input belongs
// to the exchange that began the call; when that is over, so is the input. Results over 64 KiB are offered first and
// granted when the connection's budget of 64 MiB has room for them.
//
// # Calls
//
// A call is named by the daemon and belongs to the agent, not to a connection.
// It runs once: run with an id that the agent holds is refused, unless that call
// has not run. Its output is kept from the last acknowledged offset on, at most
// hello.unacked_bytes; the command waits when that is full, also while no daemon
// is there. Offsets count the bytes of both streams together. Its outcome is kept
// until it is forgotten; a call that is forgotten before its end is dropped then.
// After a reconnect the daemon acknowledges again what is durable, since it
// cannot know what arrived, and resumes at the offset that it has; whoever was
// attached to the call before is not any more. The agent holds at most 512 calls
// and 64 MiB of results that nobody takes, and works on requests of at most 68 MiB
// together.
//
// # Breaches
//
// An agent breaks the protocol with: a frame of a wrong length or one that cannot
// be decoded; a kind that is unknown or goes the other way; an exchange that is
// not open; output with a gap, without credit, after the offer, or for an
// exchange that is no call; "not run" without an expectation, or after an effect;
// stderr of a call that does not keep the streams apart; metadata that is too large, or comes more than twenty times a second for
// longer than half a minute; a second offer, a chunk without grant or not in
// order; input that is wanted of a request that has none, or wanted again; done before all chunks, at another offset than the output's, with both
// an error and a result or with neither; a reason, signal or code that is none.
// The connection is then closed with agent.ErrViolation and nothing more is taken from
// it. Figures that cannot be (a negative time) are clamped instead. A peer that
// disappears in the middle of a frame is agent.ErrLost. An agent that does not read for
// ten seconds is ErrLost, and so is one that does not end an exchange within
// thirty seconds of its detach.
//
// A daemon that breaks it is disconnected, and the agent waits for the next one.
//
// The agent answers a ping at once, whatever its calls do. While a session has calls
// the daemon pings (see internal/session), since an agent that was stopped breaks no
// connection: one that does not answer has lost its session.
package wire
