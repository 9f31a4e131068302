package session

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/tool/run"
)

// Doctor implements API: what the drivers see of the host and, with probe, what
// throw-away sessions see from inside, one for each runtime that works here.
func (m *Manager) Doctor(ctx context.Context, p auth.Principal, probe bool) (*client.Doctor, error) {
	if err := p.Administers(); err != nil {
		return nil, err
	}
	d := &client.Doctor{Checks: []client.Check{}}
	for _, driver := range m.cfg.Drivers {
		if pr, ok := driver.(sandbox.Prober); ok {
			d.Checks = append(d.Checks, pr.Host(ctx)...)
		}
	}
	if m.cfg.Host != nil {
		d.Checks = append(d.Checks, m.cfg.Host(m.settings.Load().Limits)...)
	}
	if !probe {
		return d, nil
	}
	if err := m.accepting(); err != nil {
		return nil, err
	}
	driver, err := m.driver(m.cfg.Driver)
	if err != nil {
		return nil, m.internal("probe", err)
	}
	for _, runtime := range driver.Runtimes(ctx) {
		d.Checks = append(d.Checks, m.probe(ctx, p, runtime)...)
	}
	return d, nil
}

// Limits of the throw-away session: small, so that reaching them is quick and
// harms nobody.
const (
	probeMemory    = 96 << 20
	probePIDs      = 48
	probeCPUs      = 0.5
	probeTmp       = 8 << 20
	probeOpenFiles = 64
	probeFileSize  = 1 << 20
	probeOutput    = 1 << 20
	probeWall      = 20 * time.Second
)

// probe makes a throw-away session and looks from inside at what really holds.
// It goes the way of every session and every call.
func (m *Manager) probe(ctx context.Context, p auth.Principal, runtime string) []client.Check {
	s, err := m.Create(ctx, p, client.SessionCreate{
		Runtime: runtime,
		Image:   m.probeImage(ctx, p.Tenant),
		Labels:  map[string]string{"toold/probe": runtime},
		TTL:     client.Duration(10 * time.Minute),
		Limits: client.Limits{
			CPUs: probeCPUs, Memory: probeMemory, PIDs: probePIDs, Tmp: probeTmp, OpenFiles: probeOpenFiles,
			FileSize: probeFileSize, Output: probeOutput, Wall: client.Duration(probeWall), Calls: 1,
		},
	})
	if err != nil {
		return []client.Check{{
			Group: "runtime", Name: runtime, Status: client.CheckFail, Probed: true,
			Detail: "a session could not be made: " + err.Error(), Hint: "the daemon's log has the cause",
		}}
	}
	defer func() {
		// Also when the request has ended: nothing of a probe may stay.
		if _, err := m.End(context.WithoutCancel(ctx), p, s.ID, EndOptions{Force: true}); err != nil {
			m.log.Error("end the session of a probe", "session", s.ID, "error", err)
		}
	}()
	checks := []client.Check{{
		Group: "runtime", Name: runtime, Status: client.CheckOK, Probed: true,
		Detail: "a session was made and runs commands",
	}}
	if s.Image != "" {
		checks[0].Detail += ", with the image " + s.Image
	}
	for _, note := range s.Notes {
		checks = append(checks, client.Check{Group: "runtime", Name: runtime, Status: client.CheckWarn, Probed: true, Detail: note})
	}
	for _, pr := range slices.Concat(limitProbes(), defenceProbes()) {
		c := m.probeOne(ctx, p, s.ID, pr)
		if runtime != m.firstRuntime(ctx) {
			c.Name += " (" + runtime + ")"
		}
		checks = append(checks, c)
	}
	return checks
}

// probeImage is the image of a throw-away session: the first one where sessions
// must have one, and none where they need none. "" may be refused: whoever has no
// images is told by Create what to do.
func (m *Manager) probeImage(ctx context.Context, tenant string) string {
	images, set := m.cfg.Images[m.cfg.Driver], m.settings.Load()
	if images == nil || m.cfg.Image != "" || !set.RequireImage && !set.Tenants[tenant].RequireImage {
		return ""
	}
	all, err := images.List(ctx)
	if err != nil || len(all) == 0 {
		return ""
	}
	return all[0].Digest
}

func (m *Manager) firstRuntime(ctx context.Context) string {
	if d, err := m.driver(m.cfg.Driver); err == nil {
		if all := d.Runtimes(ctx); len(all) > 0 {
			return all[0]
		}
	}
	return ""
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

func (m *Manager) probeOne(ctx context.Context, p auth.Principal, session string, pr probe) client.Check {
	check := client.Check{Group: pr.group, Name: pr.name, Status: client.CheckFail, Probed: true, Hint: pr.hint}
	job := run.CommandJob(pr.script, 0)
	timeout := pr.timeout
	if timeout == 0 {
		timeout = probeTimeout
	}
	c, err := m.Call(ctx, p, session, client.CallCreate{Tool: job.Tool, Input: job.Input, TimeoutMillis: timeout.Milliseconds()}, CallOptions{probe: true})
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
