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
	StateDir                  string        // whose file system bounds limits.disk
}

// Fill puts what sessions get where nothing was asked for, and refuses what
// is above the most of the configuration or more than the host has.
func Fill(l *client.Limits, c Config) error {
	if math.IsNaN(l.CPUs) || math.IsInf(l.CPUs, 0) {
		return fault.Invalid.Errorf("limits.cpus is not a number")
	}
	asked := *l
	fields := limitFields(l, [...]client.Limits{c.TenantDefault, c.Default, c.TenantMost, c.Most})
	for _, f := range fields {
		if f.value > 0 || f.name == "cpus" || f.name == "memory" { // whose defaults give way to the host
			f.host.most, f.host.what = hostHas(f.name, c.StateDir), hostSources[f.name]
		}
		if err := f.fill(); err != nil {
			return err
		}
	}
	if asked.Tmp == 0 && (asked.Memory > 0 || l.Memory != c.Default.Memory) {
		// Less memory, by request or by a maximum, has room for less in it: see
		// the sizes that drivers give to what lies in memory.
		l.Tmp = min(l.Tmp, max(l.Memory/8, leastTmp))
	}
	return nil
}

// leastTmp is the smallest /tmp that is of any use.
const leastTmp = 1 << 20

// limitField is one limit: as asked for, what a session gets that does not ask, and
// the most that it may ask for.
type limitField struct {
	name   string
	value  float64 // asked for; 0 = not
	def    float64
	most   float64 // 0 = no bound
	tenant bool    // most is the tenant's own
	host   struct {
		most float64 // 0 = unknown or without meaning
		what string
	}
	set    func(float64)
	format func(float64) string
}

// limitFields takes the limits that are asked for and those of the configuration:
// what sessions of the tenant get, what all get, and the most of both.
func limitFields(l *client.Limits, c [4]client.Limits) []*limitField {
	plain := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	bytes := func(v float64) string { return client.Size(v).String() }
	span := func(v float64) string { return client.Duration(v).String() }
	return []*limitField{
		field("cpus", l, c, func(l *client.Limits) *float64 { return &l.CPUs }, plain),
		field("memory", l, c, func(l *client.Limits) *client.Size { return &l.Memory }, bytes),
		field("pids", l, c, func(l *client.Limits) *int64 { return &l.PIDs }, plain),
		field("tmp", l, c, func(l *client.Limits) *client.Size { return &l.Tmp }, bytes),
		field("open_files", l, c, func(l *client.Limits) *int64 { return &l.OpenFiles }, plain),
		field("file_size", l, c, func(l *client.Limits) *client.Size { return &l.FileSize }, bytes),
		field("disk", l, c, func(l *client.Limits) *client.Size { return &l.Disk }, bytes),
		field("calls", l, c, func(l *client.Limits) *int { return &l.Calls }, plain),
		field("output", l, c, func(l *client.Limits) *client.Size { return &l.Output }, bytes),
		field("wall", l, c, func(l *client.Limits) *client.Duration { return &l.Wall }, span),
	}
}

func field[T ~int64 | ~int | ~float64](name string, l *client.Limits, c [4]client.Limits, at func(*client.Limits) *T, format func(float64) string) *limitField {
	of := func(i int) float64 { return float64(*at(&c[i])) }
	f := &limitField{
		name: name, value: float64(*at(l)), def: cmp.Or(of(0), of(1)), most: of(3),
		set: func(v float64) { *at(l) = T(v) }, format: format,
	}
	if ten := of(2); ten > 0 && (f.most == 0 || ten <= f.most) {
		f.most, f.tenant = ten, true
	}
	return f
}

func (f *limitField) fill() error {
	switch {
	case f.value < 0:
		return fault.Invalid.Errorf("limits.%s is negative (%s); leave it out for the default", f.name, f.format(f.value))
	case f.value == 0:
		v := f.def
		for _, bound := range []float64{f.most, f.host.most} {
			if bound > 0 && (v == 0 && bound == f.most || v > bound) {
				v = bound
			}
		}
		f.set(v)
	case f.most > 0 && f.value > f.most:
		key := "limits.max." + f.name
		if f.tenant {
			key += " of the tenant"
		}
		return fault.Invalid.Errorf("limits.%s is %s; the most that a session may ask for is %s", f.name, f.format(f.value), f.format(f.most)).
			Next(fmt.Sprintf("ask for %s or less; an admin can raise it (%s in the daemon's configuration)", f.format(f.most), key))
	case f.host.most > 0 && f.value > f.host.most:
		return fault.Invalid.Errorf("limits.%s is %s; this host has %s (%s)", f.name, f.format(f.value), f.format(f.host.most), f.host.what).
			Next(fmt.Sprintf("ask for %s or less", f.format(f.host.most)))
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
