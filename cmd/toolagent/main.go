// Command toolagent is PID 1 of every sandbox: it runs the tools that the daemon
// asks for. Without arguments its control socket listens on descriptor 3, and
// descriptor 4 gives the nonce that the daemon will show. Where a sandbox can be
// given no descriptors, "toolagent dial DIR" dials DIR/socket and finds the nonce
// in DIR/nonce; a second directory is that of a cgroup v2 hierarchy that is the
// sandbox's alone, in which the agent makes cgroups for calls. Where the sandbox
// sees no file of the daemon's, "toolagent listen DIR" listens at DIR/socket, and
// "toolagent connect SOCKET" carries a connection there. "toolagent connect HOST PORT" carries one
// through the sandbox's proxy, as ssh's ProxyCommand. "toolagent picture FILE INODE" makes a picture
// smaller, as the tool user. Only these three are other processes than PID 1.
//
// The runtime does not look at cgroups: those that a session shows are its tools', and
// it would keep files of theirs open.
//
//go:debug containermaxprocs=0
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/agent/inside"
	"github.com/toold/toold/internal/agent/inside/passage"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/tool/run/shrink"
)

// version is set by the linker.
var version = "dev"

// shrinkMode is the argument with which a tool's call runs this program, as the tool user.
const shrinkMode = "picture"

const (
	listenFD = 3
	nonceFD  = 4

	nonceSize   = 32
	memoryLimit = 192 << 20 // for the collector; a few large results fit in

	// Of package sandbox, which the agent does not link.
	ripgrepDir = "/run/toold/ripgrep" // RipgrepDir
	treeDir    = "/run/toold/tree"    // TreeDir
	journalDir = "/run/toold/journal" // JournalDir
	agentPath  = "/run/toold/agent"   // AgentPath

	// Of packages control and egress, likewise.
	networkName = "network"
	proxyPort   = 3128
	socksPort   = 1080
)

// The main goroutine keeps the main thread for good. Threads of the file tools
// change their user id, and the main thread's is what the kernel shows as PID 1's.
func init() {
	runtime.LockOSThread()
	runtime.MemProfileRate = 0 // its table would be a good part of an idle agent
}

func main() {
	if err := serve(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "toolagent:", err)
		os.Exit(1)
	}
}

func serve(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "connect":
		return connect(args[1])
	case len(args) == 3 && args[0] == "connect":
		return connectOut(args[1], args[2])
	}
	if len(args) == 4 && args[0] == shrinkMode && args[3] == run.CheckPicture {
		return shrink.Check(args[1], args[2], os.Stdout)
	}
	if len(args) == 3 && args[0] == shrinkMode {
		bytes, side := run.PictureBounds()
		return shrink.Main(args[1], args[2], shrink.Bounds{Bytes: bytes, Side: side}, os.Stdout)
	}
	if os.Getpid() != 1 {
		return errors.New("this is the init process of toold's sandboxes; it does nothing when started by hand")
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make the memory unreadable: %w", err)
	}
	daemon, nonce, err := connections(args)
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(2)
	debug.SetMemoryLimit(memoryLimit)
	debug.SetGCPercent(50)
	// The kernel delivers to PID 1 only signals that it handles. Those that
	// would end a program are taken and dropped; SIGTERM, which can only come
	// from outside, ends the sandbox.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	s, err := inside.NewServer(inside.ServerConfig{
		Listener: daemon, Nonce: nonce, Cgroup: ownCgroup(args), Tools: run.Builtin(), PID1: true, Version: version,
		Ripgrep: run.RipgrepIn(ripgrepDir), TreeDir: treeDir, Journal: journalDir, Shrink: []string{agentPath, shrinkMode}, Passage: passageFor(args),
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	err = s.Serve(ctx)
	if ctx.Err() != nil || errors.Is(err, inside.ErrOrphaned) {
		return nil
	}
	return err
}

// connections is the way to the daemon, and what it will show.
func connections(args []string) (inside.Connections, []byte, error) {
	switch {
	case len(args) == 0:
		return inherited()
	case (len(args) == 2 || len(args) == 3) && args[0] == "dial":
		return dialled(args[1])
	case len(args) == 2 && args[0] == "listen":
		return listening(args[1])
	default:
		return nil, nil, fmt.Errorf("usage: toolagent [dial DIR [CGROUP] | listen DIR | connect SOCKET | connect HOST PORT]; got %q", args)
	}
}

// passageFor is the way of tools' connections to a daemon that is dialled.
func passageFor(args []string) *passage.Passage {
	if len(args) == 0 || args[0] != "dial" {
		return nil
	}
	return &passage.Passage{Socket: filepath.Join(args[1], networkName), Ports: []uint16{proxyPort, socksPort}}
}

func ownCgroup(args []string) string {
	if len(args) == 3 && args[0] == "dial" {
		return args[2]
	}
	return ""
}

// dialled finds the daemon in the control directory, and closes all descriptors
// that the runtime has passed on.
func dialled(dir string) (inside.Connections, []byte, error) {
	if err := unix.CloseRange(listenFD, uint(^uint32(0)), 0); err != nil {
		return nil, nil, fmt.Errorf("close other descriptors: %w", err)
	}
	nonce, err := nonceIn(dir)
	if err != nil {
		return nil, nil, err
	}
	return inside.NewDialler(dir), nonce, nil
}

// nonceIn reads the nonce that the daemon has left in a directory.
func nonceIn(dir string) ([]byte, error) {
	f, err := os.Open(filepath.Join(dir, "nonce"))
	if err != nil {
		return nil, fmt.Errorf("read the nonce: %w", err)
	}
	nonce, err := readNonce(f)
	if err != nil {
		return nil, fmt.Errorf("read the nonce from %s: %w", f.Name(), err)
	}
	return nonce, nil
}

// readNonce reads a nonce and nothing else from f, and closes it.
func readNonce(f *os.File) ([]byte, error) {
	nonce, err := io.ReadAll(io.LimitReader(f, nonceSize+1))
	_ = f.Close()
	if err == nil && len(nonce) != nonceSize {
		err = fmt.Errorf("%d bytes; it has %d", len(nonce), nonceSize)
	}
	return nonce, err
}

// inherited takes over the descriptors that the runtime has passed on, and
// closes all others.
func inherited() (inside.Connections, []byte, error) {
	if err := unix.CloseRange(nonceFD+1, uint(^uint32(0)), 0); err != nil {
		return nil, nil, fmt.Errorf("close other descriptors: %w", err)
	}
	unix.CloseOnExec(listenFD)
	unix.CloseOnExec(nonceFD)
	nonce, err := readNonce(os.NewFile(nonceFD, "nonce"))
	if err != nil {
		return nil, nil, fmt.Errorf("read the nonce from descriptor %d: %w", nonceFD, err)
	}
	f := os.NewFile(listenFD, "control socket")
	l, err := net.FileListener(f)
	_ = f.Close()
	if err != nil {
		return nil, nil, fmt.Errorf("listen on descriptor %d: %w", listenFD, err)
	}
	ln, ok := l.(*net.UnixListener)
	if !ok {
		return nil, nil, fmt.Errorf("descriptor %d is not a Unix socket", listenFD)
	}
	ln.SetUnlinkOnClose(false)
	return ln, nonce, nil
}
