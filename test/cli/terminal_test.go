package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/testrig"
)

// cmdTerminal runs one of our programs with a terminal as its input and output. What
// that shows is the standard output for the commands that follow, whole: it is read
// until the last process has left it. Standard error is none: how long something takes
// would be shown there, if it takes long.
func cmdTerminal(ts *testscript.TestScript, neg bool, args []string) {
	var size unix.Winsize
	if len(args) > 0 {
		if n, _ := fmt.Sscanf(args[0], "%dx%d", &size.Col, &size.Row); n == 2 {
			args = args[1:]
		}
	}
	var presses []press
	for ; len(args) > 0; args = args[1:] {
		after, keys, ok := strings.Cut(args[0], "=>")
		if !ok {
			break
		}
		presses = append(presses, press{after: after, keys: keys})
	}
	if neg || len(args) == 0 {
		ts.Fatalf("usage: terminal [COLUMNSxROWS] [TEXT=>KEYS]... COMMAND...")
	}
	master, slave, err := openPTY()
	ts.Check(err)
	defer master.Close()
	ts.Check(unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &size))
	cmd := exec.Command(filepath.Join(programs, args[0]), args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = []string{"TERM=xterm"}
	for _, name := range []string{"PATH", "TMPDIR", "TOOLD_SOCKET"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, ts.Stderr()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // it ends with the terminal
	err = errors.Join(cmd.Start(), slave.Close())
	ts.Check(err)
	shown, rerr := readPressing(master, presses)
	_, werr := ts.Stdout().Write(shown)
	err = errors.Join(cmd.Wait(), werr)
	ts.Check(err)
	if !errors.Is(rerr, syscall.EIO) { // as it ends where nobody has it open
		ts.Check(rerr)
	}
}

// press are keys for when a text has been shown; held ones are pressed again until the terminal is left.
type press struct {
	after, keys string
	held        bool
}

// hold presses keys until what it gives is called.
func hold(master *os.File, keys string) (release func()) {
	over := make(chan struct{})
	go func() {
		again := time.NewTicker(50 * time.Millisecond)
		defer again.Stop()
		for {
			select {
			case <-over:
				return
			case <-again.C:
				_, _ = master.WriteString(keys) // nobody may be there any more
			}
		}
	}()
	return sync.OnceFunc(func() { close(over) })
}

// readPressing reads what a terminal shows, and presses keys when it shows what they
// wait for, one after the other.
func readPressing(master *os.File, presses []press) (shown []byte, err error) {
	seen, buf := 0, make([]byte, 4096)
	for {
		n, err := master.Read(buf)
		shown = append(shown, buf[:n]...)
		if err != nil {
			if len(presses) > 0 {
				return shown, fmt.Errorf("%q was not shown, only\n%s", presses[0].after, shown)
			}
			return shown, err
		}
		for len(presses) > 0 {
			at := bytes.Index(shown[seen:], []byte(presses[0].after))
			if at < 0 {
				break
			}
			seen += at + len(presses[0].after)
			if _, err := master.WriteString(presses[0].keys); err != nil {
				return shown, err
			}
			if presses[0].held {
				defer hold(master, presses[0].keys)()
			}
			presses = presses[1:]
		}
	}
}

// openPTY makes a terminal: what is written to the slave can be read from the master.
func openPTY() (master, slave *os.File, err error) {
	master, path, err := testrig.Terminal()
	if err != nil {
		return nil, nil, err
	}
	if slave, err = os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, errors.Join(err, master.Close())
	}
	return master, slave, nil
}

// cmdNarrow looks at what a terminal has shown: no line may be wider than it.
func cmdNarrow(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: narrow COLUMNS")
	}
	columns, err := strconv.Atoi(args[0])
	ts.Check(err)
	shown := strings.ReplaceAll(ts.ReadFile("stdout"), "\x1b[H\x1b[2J", "\n") // an empty screen
	for l := range strings.Lines(colours.ReplaceAllString(shown, "")) {
		if l = strings.TrimRight(l, "\r\n"); utf8.RuneCountInString(l) > columns {
			ts.Fatalf("%d columns: %q", utf8.RuneCountInString(l), l)
		}
	}
}

// colours are what programs colour text with.
var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")
