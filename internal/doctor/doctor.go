// Package doctor checks which limits and defences really hold, on the host and from
// inside throw-away sessions.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/worktree/layers"
)

// Call makes a call in a session. No rule is about it; else it goes the way of every call.
type Call = func(r client.CallCreate) (*client.Call, error)

// Sessions is what a Doctor needs of those who hold sessions; *session.Manager
// implements it.
type Sessions interface {
	// Accepting says why no session can be made now.
	Accepting() error
	// Throwaway makes a session for p, with an image where there must be one, and ends it
	// when use has returned, also if ctx has ended.
	Throwaway(ctx context.Context, p auth.Principal, r client.SessionCreate, use func(s *client.Session, call Call)) error
}

// Config is what a Doctor needs.
type Config struct {
	Sessions Sessions
	Drivers  map[string]sandbox.Driver
	Driver   string // the one whose runtimes are probed
	// Host looks at the daemon and its host, beside what the drivers look at; nil is nothing more.
	Host func(ctx context.Context) []client.Check
	// Trees has the layers of worktrees; nil is not looked at.
	Trees *layers.Store
}

// Doctor examines a daemon.
type Doctor struct{ cfg Config }

// New makes a Doctor.
func New(cfg Config) *Doctor { return &Doctor{cfg} }

// Doctor gives what the drivers see of the host and, with probe, what throw-away
// sessions see from inside, one for each runtime that works here. It is for
// administrators.
func (d *Doctor) Doctor(ctx context.Context, p auth.Principal, probe bool) (*client.Doctor, error) {
	if err := p.Administers(); err != nil {
		return nil, err
	}
	found := &client.Doctor{Checks: []client.Check{}}
	for _, driver := range d.cfg.Drivers {
		if pr, ok := driver.(sandbox.Prober); ok {
			found.Checks = append(found.Checks, pr.Host(ctx)...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.cfg.Drivers)) {
		if dd, ok := d.cfg.Drivers[name].(sandbox.Disks); ok {
			found.Checks = append(found.Checks, diskCheck(name, dd))
		}
	}
	if d.cfg.Host != nil {
		found.Checks = append(found.Checks, d.cfg.Host(ctx)...)
	}
	if d.cfg.Trees != nil {
		found.Checks = append(found.Checks, worktrees(d.cfg.Trees)...)
	}
	if !probe {
		return found, nil
	}
	if err := d.cfg.Sessions.Accepting(); err != nil {
		return nil, err
	}
	driver := d.cfg.Drivers[d.cfg.Driver]
	names, err := driver.Runtimes(ctx)
	if err != nil {
		found.Checks = append(found.Checks, client.Check{
			Group: "runtime", Name: d.cfg.Driver, Status: client.CheckFail, Detail: "not looked at from inside, since its runtimes are not known: " + err.Error(),
			Hint: "put right what the checks of the driver name, and ask again",
		})
	}
	for i, runtime := range names {
		suffix := ""
		if i > 0 {
			suffix = " (" + runtime + ")"
		}
		if err := driver.Try(ctx, runtime); err != nil {
			found.Checks = append(found.Checks, client.Check{
				Group: "runtime", Name: runtime, Status: client.CheckNA, Detail: "not looked at from inside, since it does not work now: " + err.Error(),
				Hint: "ask again; where it stays so, its line among the checks of the host says more",
			})
			continue
		}
		found.Checks = append(found.Checks, d.probe(ctx, p, runtime, suffix)...)
		found.Checks = append(found.Checks, d.network(ctx, p, runtime, suffix))
	}
	return found, nil
}

// diskCheck says whether home directories lie on disks.
func diskCheck(driver string, d sandbox.Disks) client.Check {
	c := client.Check{Group: "disk", Name: "home directories (" + driver + ")", Status: client.CheckOK, Detail: "each is on a disk of limits.disk", Probed: true}
	if err := d.Disks(); err != nil {
		c.Status, c.Detail = client.CheckWarn, "they are in memory: "+err.Error()
		c.Hint = "it takes mke2fs (e2fsprogs) and loop devices, also in the device cgroup of toold"
	}
	return c
}

// Limits of the throw-away session: small, so that reaching them is quick and
// harms nobody.
const (
	probeMemory    = 96 << 20
	probePIDs      = 48
	probeCPUs      = 0.5
	probeTmp       = 8 << 20
	probeDisk      = 24 << 20 // where home directories lie on disks
	probeOpenFiles = 64
	probeFileSize  = 1 << 20
	probeOutput    = 1 << 20
	probeWall      = 20 * time.Second
)

// probe makes a throw-away session and looks from inside at what really holds.
// It goes the way of every session and every call. suffix is for the names of checks.
func (d *Doctor) probe(ctx context.Context, p auth.Principal, runtime, suffix string) (checks []client.Check) {
	add := func(status client.CheckStatus, detail, hint string) {
		checks = append(checks, client.Check{Group: "runtime", Name: runtime, Status: status, Probed: true, Detail: detail, Hint: hint})
	}
	var disk client.Size
	if dd, ok := d.cfg.Drivers[d.cfg.Driver].(sandbox.Disks); ok && dd.Disks() == nil {
		disk = probeDisk
	}
	err := d.cfg.Sessions.Throwaway(ctx, p, client.SessionCreate{
		Runtime: runtime,
		Labels:  map[string]string{"toold/probe": runtime},
		TTL:     client.Duration(10 * time.Minute),
		Network: client.Network{Mode: client.NetworkNone},
		Limits: client.Limits{
			CPUs: probeCPUs, Memory: probeMemory, PIDs: probePIDs, Tmp: probeTmp, Disk: disk, OpenFiles: probeOpenFiles,
			FileSize: probeFileSize, Output: probeOutput, Wall: client.Duration(probeWall), Calls: 1,
		},
	}, func(s *client.Session, call Call) {
		made := "a session was made and runs commands"
		if s.Image != "" {
			made += ", with the image " + s.Image
		}
		add(client.CheckOK, made, "")
		for _, note := range s.Notes {
			add(client.CheckWarn, note, "")
		}
		for _, pr := range slices.Concat(limitProbes(), defenceProbes()) {
			c := pr.run(call)
			c.Name += suffix
			checks = append(checks, c)
		}
	})
	if err != nil {
		add(client.CheckFail, "a session could not be made: "+err.Error(), "the daemon's log has the cause")
	}
	return checks
}

// probe is one thing that is tried inside a session.
type probe struct {
	group, name string
	script      string
	timeout     time.Duration // 0 = probeTimeout
	// judge says whether what the script did is as it should be.
	judge func(c *client.Call) (holds bool, detail string)
	hint  string
}

const probeTimeout = 10 * time.Second

func (pr *probe) run(call Call) client.Check {
	check := client.Check{Group: pr.group, Name: pr.name, Status: client.CheckFail, Probed: true, Hint: pr.hint}
	job := run.CommandJob(pr.script, 0)
	c, err := call(client.CallCreate{Tool: job.Tool, Input: job.Input, TimeoutMillis: cmp.Or(pr.timeout, probeTimeout).Milliseconds()})
	if err != nil {
		check.Detail = err.Error()
		return check
	}
	if c.Error != nil {
		check.Detail = c.Error.Error()
		return check
	}
	holds, detail := pr.judge(c)
	check.Detail = detail
	if holds {
		check.Status, check.Hint = client.CheckOK, ""
	} else {
		check.Detail += fmt.Sprintf("; the session printed %q", excerpt(c.Output))
	}
	return check
}

// excerpt is the end of an output, short enough for a table.
func excerpt(s string) string {
	const most = 200
	if len(s) > most {
		return "…" + s[len(s)-most:]
	}
	return s
}
