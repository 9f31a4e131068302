package exec

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/wire"
)

// prepare opens what every program is started with.
func (s *spawner) prepare(h *wire.Hello, notes *[]string) error {
	var err error
	s.devNull, err = unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/null: %w", err)
	}
	var note string
	if s.landlock, note = newLandlock(); note != "" {
		*notes = append(*notes, note)
	}
	if s.limits, err = limitsOf(h, notes); err == nil {
		err = limitCores()
	}
	if err != nil {
		s.close()
	}
	return err
}

// limitCores gives this process, and so programs, which cannot change it, a limit of 1 byte for
// core files: the kernel then neither writes one nor starts the program that its core pattern may
// name. With 0 it does start that, as the host's root.
func limitCores() error {
	var own unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_CORE, &own)
	if err == nil && own.Max > 0 { // else it was started without the right to more
		own.Cur, own.Max = 1, 1
		err = unix.Setrlimit(unix.RLIMIT_CORE, &own)
	}
	if err != nil {
		return fmt.Errorf("limit core files: %w", err)
	}
	return nil
}

// close closes what prepare has opened.
func (s *spawner) close() {
	if s.gate != nil {
		s.gate.close()
	}
	_ = unix.Close(s.devNull)
	s.landlock.close()
}

// limitsOf are the limits of one process. A limit above what the agent itself
// may have cannot be given; the lower one holds then, and a note says so.
func limitsOf(h *wire.Hello, notes *[]string) ([]limit, error) {
	var limits []limit
	for _, w := range []struct {
		name     string
		resource int
		value    int64
	}{{"open files", unix.RLIMIT_NOFILE, h.OpenFiles}, {"file size", unix.RLIMIT_FSIZE, h.FileSize}} {
		if w.value <= 0 {
			continue
		}
		var own unix.Rlimit
		if err := unix.Getrlimit(w.resource, &own); err != nil {
			return nil, fmt.Errorf("read the limit of %s: %w", w.name, err)
		}
		v := uint64(w.value)
		if v > own.Max {
			*notes = append(*notes, fmt.Sprintf("limit of %s is %d: %d is more than this host allows", w.name, own.Max, v))
			v = own.Max
		}
		limits = append(limits, limit{resource: uintptr(w.resource), value: unix.Rlimit{Cur: v, Max: v}})
	}
	return limits, nil
}

// ignoredSignals are those that this process was started with as ignored, which
// a program would inherit.
func ignoredSignals() []uintptr {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil
	}
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		v, ok := strings.CutPrefix(sc.Text(), "SigIgn:")
		if !ok {
			continue
		}
		mask, err := strconv.ParseUint(strings.TrimSpace(v), 16, 64)
		if err != nil {
			return nil
		}
		var list []uintptr
		for sig := uintptr(1); sig <= 64; sig++ {
			if mask&(1<<(sig-1)) != 0 {
				list = append(list, sig)
			}
		}
		return list
	}
	return nil
}
