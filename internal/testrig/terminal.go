package testrig

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Terminal makes a pseudo-terminal: what is written to master are its keys, what it shows
// is read from there, and path is that of the terminal itself.
func Terminal() (master *os.File, path string, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, "", err
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		return nil, "", errors.Join(err, master.Close())
	}
	return master, fmt.Sprintf("/dev/pts/%d", n), nil
}
