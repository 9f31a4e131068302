package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// cmdTerminal runs one of our programs with a terminal as its input and output. What
// that shows is the standard output for the commands that follow, whole: it is read
// until the last process has left it. Standard error is none: how long something takes
// would be shown there, if it takes long.
func cmdTerminal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: terminal COMMAND...")
	}
	master, slave, err := openPTY()
	ts.Check(err)
	defer master.Close()
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
	shown, rerr := io.ReadAll(master)
	_, werr := ts.Stdout().Write(shown)
	err = errors.Join(cmd.Wait(), werr)
	ts.Check(err)
	if !errors.Is(rerr, syscall.EIO) { // as it ends where nobody has it open
		ts.Check(rerr)
	}
}

// openPTY makes a terminal: what is written to the slave can be read from the master.
func openPTY() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(err, master.Close())
	}
	return master, slave, nil
}
