// Package limits settles what a session may use: what is asked for, what sessions get that do not
// ask, the most that they may ask for, and what the host has.
package limits

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
)

// Config is where limits come from. Zero is no bound, or nothing of its own.
type Config struct {
	Default, Most             client.Limits // of all sessions
	TenantDefault, TenantMost client.Limits // of the tenant's, which stand over those
	AtMost                    client.Limits // lowers what is settled otherwise
	StateDir                  string        // whose file system bounds limits.disk
	// Give: what is asked for and cannot be had gives way, as defaults do, where it would be
	// refused. It is for sessions that begin with what another one was given, perhaps by an
	// earlier configuration or on another host.
	Give bool
}

// Fill puts what sessions get where nothing was asked for, and refuses what
// is above the most of the configuration or more than the host has. notes say where a session
// gets less than it would because the host has no more.
func Fill(l *client.Limits, c Config) (notes []string, err error) {
	if math.IsNaN(l.CPUs) || math.IsInf(l.CPUs, 0) {
		return nil, fault.In(fault.Invalid.Errorf("limits.cpus is not a number"), "limits", "cpus")
	}
	asked := *l
	for _, err := range []error{
		fill("cpus", l, &c, &notes, func(l *client.Limits) *float64 { return &l.CPUs }),
		fill("memory", l, &c, &notes, func(l *client.Limits) *client.Size { return &l.Memory }),
		fill("pids", l, &c, &notes, func(l *client.Limits) *int64 { return &l.PIDs }),
		fill("tmp", l, &c, &notes, func(l *client.Limits) *client.Size { return &l.Tmp }),
		fill("open_files", l, &c, &notes, func(l *client.Limits) *int64 { return &l.OpenFiles }),
		fill("file_size", l, &c, &notes, func(l *client.Limits) *client.Size { return &l.FileSize }),
		fill("disk", l, &c, &notes, func(l *client.Limits) *client.Size { return &l.Disk }),
		fill("calls", l, &c, &notes, func(l *client.Limits) *int { return &l.Calls }),
		fill("output", l, &c, &notes, func(l *client.Limits) *client.Size { return &l.Output }),
		fill("wall", l, &c, &notes, func(l *client.Limits) *client.Duration { return &l.Wall }),
	} {
		if err != nil {
			return nil, err
		}
	}
	if low := c.AtMost.Tmp; l.Tmp == 0 && low > 0 && low <= l.Disk/2 {
		l.Tmp, l.Disk = low, l.Disk-low // together what limits.disk alone bounds otherwise
	}
	if asked.Tmp == 0 && (asked.Memory > 0 || l.Memory != c.Default.Memory) {
		// Less memory, by request or by a maximum, has room for less in it: see
		// the sizes that drivers give to what lies in memory.
		l.Tmp = min(l.Tmp, max(l.Memory/8, leastTmp))
	}
	return notes, nil
}

// leastTmp is the smallest /tmp that is of any use.
const leastTmp = 1 << 20

// leastSize (bytes) is less than anybody means: who asks for less has left the unit out.
const leastSize = 64 << 10

func isSize(v any) bool { _, is := v.(client.Size); return is }

// fill settles one limit, which at finds.
func fill[T ~int64 | ~int | ~float64](name string, l *client.Limits, c *Config, notes *[]string, at func(*client.Limits) *T) (err error) {
	defer func() { err = fault.In(err, "limits", name) }()
	v, most, key := at(l), *at(&c.Most), "limits.max."+name
	if ten := *at(&c.TenantMost); ten > 0 && (most == 0 || ten <= most) {
		most, key = ten, key+" of the tenant"
	}
	var host T                                                          // 0: unknown, or without meaning
	if *v > 0 || name == "cpus" || name == "memory" || name == "disk" { // whose defaults give way to the host
		host = T(hostHas(name, c.StateDir))
	}
	give := func(to T, whose string) {
		if to > 0 && *v > to {
			*notes = append(*notes, fmt.Sprintf("limits.%s is %v and not %v: that is all that there is (%s)", name, to, *v, whose))
			*v = to
		}
	}
	if c.Give {
		give(most, key)
		give(host, hostSources[name])
	}
	switch {
	case *v < 0:
		return fault.Invalid.Errorf("limits.%s is negative (%v); leave it out for the default", name, *v)
	case *v == 0:
		*v = cmp.Or(*at(&c.TenantDefault), *at(&c.Default))
		if most > 0 && (*v == 0 && name != "tmp" || *v > most) { // without it /tmp is bounded by limits.disk
			*v = most
		}
		give(host, hostSources[name])
	case !c.Give && isSize(*v) && *v < leastSize:
		return fault.Invalid.Errorf("limits.%s is %v", name, *v).
			Next(fmt.Sprintf("a number alone is bytes: give its unit, such as %dMiB, and no less than %v", int64(*v), client.Size(leastSize)))
	case most > 0 && *v > most:
		return fault.Invalid.Errorf("limits.%s is %v; the most that a session may ask for is %v", name, *v, most).
			Next(fmt.Sprintf("ask for %v or less; an admin can raise it (%s in the daemon's configuration)", most, key))
	case host > 0 && *v > host:
		return fault.Invalid.Errorf("limits.%s is %v; this host has %v (%s)", name, *v, host, hostSources[name]).
			Next(fmt.Sprintf("ask for %v or less", host))
	}
	switch low := *at(&c.AtMost); {
	case low < 0 || isSize(low) && low > 0 && low < leastSize:
		return fault.In(fault.Invalid.Errorf("at_most.%s is %v: that is no limit to work with", name, low).Next("give a larger one, or leave it out"), "at_most", name)
	case low > 0 && (*v == 0 && name != "tmp" || *v > low): // a /tmp without a bound of its own: see Fill
		*v = low
	}
	return nil
}

// hostSources say where the numbers of hostHas come from.
var hostSources = map[string]string{
	"cpus":       "its CPUs",
	"memory":     "its memory",
	"pids":       "sysctl kernel.pid_max",
	"open_files": "sysctl fs.nr_open",
	"disk":       "the size of the file system of the state directory",
}

// hostHas is how much of a limit there can be on this host; 0 = that is not known,
// or it is no matter of the host.
func hostHas(limit, stateDir string) float64 {
	switch limit {
	case "cpus":
		return float64(runtime.NumCPU())
	case "memory":
		var si unix.Sysinfo_t
		if err := unix.Sysinfo(&si); err == nil {
			return float64(si.Totalram) * float64(si.Unit)
		}
	case "pids":
		return sysctl("kernel/pid_max")
	case "open_files":
		return sysctl("fs/nr_open")
	case "disk":
		var st unix.Statfs_t
		if err := unix.Statfs(stateDir, &st); err == nil {
			return float64(st.Blocks) * float64(st.Bsize)
		}
	}
	return 0
}

// sysctl reads a number of the kernel's; 0 = it cannot be read.
func sysctl(name string) float64 {
	b, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return 0
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(string(b)), 64)
	if err != nil {
		return 0
	}
	return v
}
