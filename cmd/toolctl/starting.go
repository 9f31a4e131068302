package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// machine is what toolctl sees of how toold is started on this host, and by whom.
type machine struct {
	root    bool
	unit    bool   // systemd runs and has toold.service
	program string // the path of toold; "" where there is none
	self    string // how this program is called
}

// unitDirs are where systemd finds toold.service.
var unitDirs = []string{"/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

func thisMachine() machine {
	m := machine{root: os.Geteuid() == 0, self: "toolctl"}
	m.program, _ = findToold()
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		for _, dir := range unitDirs {
			_, err := os.Stat(filepath.Join(dir, "toold.service"))
			m.unit = m.unit || err == nil
		}
	}
	if self, err := os.Executable(); err == nil {
		found, _ := exec.LookPath("toolctl")
		if found, _ = filepath.EvalSymlinks(found); found != self {
			m.self = self
		}
	}
	return m
}

// start says how a daemon comes to listen here, and what works without one: steps that whoever calls
// can take.
func (m machine) start() (steps []string) {
	sudo := "sudo "
	if m.root {
		sudo = ""
	}
	switch {
	case m.unit:
		steps = append(steps, "start it: "+sudo+"systemctl start toold")
	case m.program == "":
		steps = append(steps, "there is no toold program beside toolctl or in PATH: install it ("+sudo+"make install, in its sources)")
	case m.root:
		steps = append(steps, "start it in another terminal: "+shellQuote([]string{m.program}))
	default:
		steps = append(steps, `only root can start it; to have it as a service that you may use, see docs/agents.md, "On a laptop, not as root"`)
	}
	steps = append(steps, "or name the socket of another one with --socket or TOOLD_SOCKET")
	if m.program != "" {
		steps = append(steps, "without a daemon: "+sudo+shellQuote([]string{m.self, "run"})+" -- COMMAND")
	}
	return steps
}

// admission says how this user comes to be let in at a socket.
func admission(socket string) string {
	group := "0"
	for _, path := range []string{socket, filepath.Dir(socket)} {
		if info, err := os.Stat(path); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				group = strconv.FormatUint(uint64(st.Gid), 10)
			}
			break
		}
	}
	if group == "0" {
		return "only root may connect: run toolctl with sudo, or set [daemon] socket_group in config.toml to a group of yours"
	}
	if g, err := user.LookupGroupId(group); err == nil {
		group = g.Name
	}
	name := strconv.Itoa(os.Geteuid())
	if u, err := user.Current(); err == nil {
		name = cmp.Or(u.Username, name)
	}
	return fmt.Sprintf("who may connect is in the group %s: sudo usermod --append --groups %s, then log in again", group, shellQuote([]string{group, name}))
}
