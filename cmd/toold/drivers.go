package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/toold/toold/internal/image"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/docker"
	"github.com/toold/toold/internal/sandbox/inside"
	"github.com/toold/toold/internal/sandbox/oci"
	"github.com/toold/toold/internal/session"
	"github.com/toold/toold/internal/store"
)

// drivers are what holds sessions: the configured one, which holds new ones, and
// those of live sessions that an earlier configuration has left.
type drivers struct {
	all      map[string]sandbox.Driver
	images   map[string]session.Images
	runtime  string   // the default, as sessions name it; "" leaves it to the driver
	runtimes []string // what sessions may run on
	ripgrep  string   // which one sandboxes get
}

// newDrivers makes them. Without its driver a live session could be neither reached
// nor ended, and must not be forgotten: then there is no daemon.
func (d *daemon) newDrivers(ctx context.Context, st *store.Store) (*drivers, error) {
	ds := &drivers{all: map[string]sandbox.Driver{}, images: map[string]session.Images{}}
	if err := d.addDriver(ds, d.cfg.Sandbox.Driver); err != nil {
		return nil, err
	}
	rows, err := st.Sessions(ctx, store.SessionFilter{Live: true})
	if err != nil {
		return nil, err
	}
	left := map[string]int{}
	for _, r := range rows {
		if ds.all[r.Driver] == nil {
			left[r.Driver]++
		}
	}
	runtime := ds.runtime
	for name, n := range left {
		d.log.Warn("sessions of another driver than the configured one are live", "driver", name, "sessions", n)
		if err := d.addDriver(ds, name); err != nil {
			return nil, fmt.Errorf("%d live sessions have sandboxes of the driver %q, which an earlier configuration named, and it cannot be used now: %w; put that right, or end them under that configuration (toolctl session rm --all)", n, name, err)
		}
	}
	ds.runtime = runtime
	return ds, nil
}

func (d *daemon) addDriver(ds *drivers, name string) error {
	agent, err := findOwn("toolagent")
	if err != nil {
		return err
	}
	rg, err := findOwn("ripgrep/rg")
	if err != nil {
		return err
	}
	if ds.ripgrep, err = inside.RipgrepVersion(filepath.Dir(rg)); err != nil {
		return err
	}
	switch name {
	case oci.Name:
		return d.addOCI(ds, agent, filepath.Dir(rg))
	case docker.Name:
		return d.addDocker(ds, agent, filepath.Dir(rg))
	default:
		return fmt.Errorf("there is no driver %q in this version", name)
	}
}

func (d *daemon) addOCI(ds *drivers, agent, ripgrep string) error {
	setting := "auto"
	if d.cfg.Sandbox.Driver == oci.Name {
		setting = d.cfg.Sandbox.Runtime
	}
	runtimes, def, err := findRuntimes(setting)
	if err != nil {
		return err
	}
	driver, err := oci.New(oci.Config{
		Runtimes:       runtimes,
		DefaultRuntime: def,
		StateDir:       filepath.Join(d.cfg.Daemon.StateDir, oci.Name),
		RunDir:         sandboxDir(&d.cfg.Daemon),
		AgentBinary:    agent,
		Ripgrep:        ripgrep,
		Rootfs:         rootfs(&d.cfg.Sandbox),
		HostPaths:      d.cfg.Sandbox.HostPaths,
		CgroupParent:   d.opts.cgroupParent,
		UIDBase:        d.cfg.Sandbox.UIDBase,
		Log:            d.log,
	})
	if err != nil {
		return err
	}
	d.onClose("OCI runtimes", driver.Close)
	images, err := image.Open(filepath.Join(d.cfg.Daemon.StateDir, "images"), d.log)
	if err != nil {
		return fmt.Errorf("images: %w", err)
	}
	d.onClose("images", images.Close)
	ds.all[oci.Name], ds.images[oci.Name] = driver, images
	ds.runtime, ds.runtimes = def, append(ds.runtimes, slices.Sorted(maps.Keys(runtimes))...)
	return nil
}

func (d *daemon) addDocker(ds *drivers, agent, ripgrep string) error {
	driver, err := newDocker(docker.Config{
		Host:         lookup(d.env, "DOCKER_HOST"),
		Image:        d.cfg.Sandbox.Image(),
		StateDir:     filepath.Join(d.cfg.Daemon.StateDir, docker.Name),
		RunDir:       sandboxDir(&d.cfg.Daemon),
		AgentBinary:  agent,
		Ripgrep:      ripgrep,
		CgroupParent: d.opts.cgroupParent,
		Log:          d.log,
	}, lookup(d.env, "DOCKER_CERT_PATH"))
	if err != nil {
		return err
	}
	d.onClose("Docker Engine", driver.Close)
	ds.all[docker.Name], ds.images[docker.Name] = driver, driver.Images()
	ds.runtimes = append(ds.runtimes, runtimeNames...)
	if r := d.cfg.Sandbox.Runtime; r != "auto" && d.cfg.Sandbox.Driver == docker.Name {
		ds.runtime = r
	}
	return nil
}

// dockerDriver is that of an Engine on this host, or of one elsewhere.
type dockerDriver interface {
	sandbox.Driver
	Images() *docker.Images
	Close() error
}

func newDocker(cfg docker.Config, certs string) (dockerDriver, error) {
	if docker.IsRemote(cfg.Host) {
		return docker.NewRemote(docker.RemoteConfig{Config: cfg, CertDir: certs})
	}
	return docker.New(cfg)
}
