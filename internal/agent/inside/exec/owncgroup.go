package exec

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// makeOwnCgroups makes the cgroups of a sandbox whose kernel is its own and has a
// v2 hierarchy for it alone, mounted at dir:
//
//	agent    this process: a cgroup that hands controllers down holds none itself
//	tools    all calls, with the limit on their processes
//
// It gives a descriptor of tools. most is the number of processes, 0: no limit.
func makeOwnCgroups(dir string, most int64) (tools int, err error) {
	fd, err := makeOwn(dir, most)
	if err != nil {
		return -1, fmt.Errorf("make cgroups below %s: %w", dir, err)
	}
	return fd, nil
}

func makeOwn(dir string, most int64) (int, error) {
	agent, tools := filepath.Join(dir, "agent"), filepath.Join(dir, "tools")
	err := errors.Join(
		os.Mkdir(agent, 0o700),
		os.Mkdir(tools, 0o700),
		control(agent, "cgroup.procs", strconv.Itoa(os.Getpid())))
	for _, d := range []string{dir, tools} {
		for _, name := range []string{"pids", "memory", "cpu"} {
			err = errors.Join(err, control(d, "cgroup.subtree_control", "+"+name))
		}
	}
	if most > 0 {
		err = errors.Join(err, control(tools, "pids.max", strconv.FormatInt(most, 10)))
	}
	if err != nil {
		return -1, err
	}
	return unix.Open(tools, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// control writes a control file, which must exist.
func control(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
