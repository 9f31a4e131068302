package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/descriptor"
)

// terminal is where a person presses keys. Reading gives them as they come,
// without waiting for the end of a line and without showing them.
type terminal interface {
	io.Reader
	// size is that of the window now.
	size() (width, height int)
	// Close gives the terminal back as it was and ends a Read that waits.
	io.Closer
}

// tty is the terminal of this process.
type tty struct {
	*os.File
	was *unix.Termios
}

// controllingTTY is the terminal that this process belongs to.
const controllingTTY = "/dev/tty"

// openTTY takes the terminal at path over. Signals by key (Ctrl-C) stay; stopping the job
// does not, since the shell would get the terminal in a state that is not its own.
func openTTY(path string) (terminal, error) {
	// Not blocking, so that closing it ends a Read.
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("open terminal: %w", err)
	}
	t := &tty{File: f}
	if err := t.control(t.keyByKey); err != nil {
		return nil, errors.Join(fmt.Errorf("open terminal: %w", err), f.Close())
	}
	return t, nil
}

// control runs f with the descriptor; File.Fd would make it block.
func (t *tty) control(f func(fd int) error) error {
	_, err := descriptor.Use(t.File, func(fd int) (struct{}, error) { return struct{}{}, f(fd) })
	return err
}

func (t *tty) keyByKey(fd int) error {
	was, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	t.was = was
	now := *was
	now.Lflag &^= unix.ICANON | unix.ECHO
	now.Cc[unix.VMIN], now.Cc[unix.VTIME], now.Cc[unix.VSUSP] = 1, 0, 0
	return unix.IoctlSetTermios(fd, unix.TCSETSF, &now) // what was typed before is dropped
}

// Close implements terminal.
func (t *tty) Close() error {
	err := t.control(func(fd int) error { return unix.IoctlSetTermios(fd, unix.TCSETSF, t.was) })
	return errors.Join(err, t.File.Close())
}

func (t *tty) size() (width, height int) {
	width, height = windowSize(-1)
	_ = t.control(func(fd int) error {
		width, height = windowSize(fd)
		return nil
	})
	return width, height
}

// windowSize is that of a terminal, or the usual one where it does not say.
func windowSize(fd int) (width, height int) {
	if s, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ); err == nil && s.Col > 0 && s.Row > 0 {
		return int(s.Col), int(s.Row)
	}
	return 80, 24
}

func columnsOf(f *os.File) int {
	wide, _ := windowSize(int(f.Fd()))
	return wide
}

// keyboard reads the keys of a terminal in the background.
type keyboard struct {
	terminal

	pressed chan keys // closed at the end
	done    chan struct{}
}

// keys are what one read gave. They are read when they come, also while nobody has
// the time for them, so that what they were pressed for is known.
type keys struct {
	text string
	at   time.Time
}

// keysAhead is how many reads may wait for somebody to have the time for them.
const keysAhead = 64

func readKeys(t terminal) *keyboard {
	k := &keyboard{terminal: t, pressed: make(chan keys, keysAhead), done: make(chan struct{})}
	go func() {
		defer close(k.pressed)
		buf := make([]byte, 256)
		for {
			n, err := t.Read(buf)
			if err != nil {
				return
			}
			select {
			case k.pressed <- keys{string(buf[:n]), time.Now()}:
			case <-k.done:
				return
			}
		}
	}()
	return k
}

// Close gives the terminal back, and waits for the end of the reading.
func (k *keyboard) Close() error {
	err := k.terminal.Close()
	close(k.done)
	for range k.pressed {
	}
	return err
}

// keys takes over the terminal that this process belongs to.
func (a *app) keys() (*keyboard, error) {
	t, err := a.openTerminal()
	if err != nil {
		return nil, err
	}
	return readKeys(t), nil
}
