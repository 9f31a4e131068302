package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"

	"github.com/toold/toold/internal/config"
	"github.com/toold/toold/internal/sandbox/cgroup"
)

// errHelp: the usage was asked for and printed.
var errHelp = flag.ErrHelp

// options is the command line.
type options struct {
	configPath string
	overrides  []config.Override // settings given as flags
	// cgroupParent is above the cgroups of all sessions; for hosts that delegate
	// a subtree, and for tests.
	cgroupParent string
	ephemeral    bool
	endSessions  bool
	version      bool
	check        bool
}

const usage = `toold runs a coding agent's tools in sandboxes, for clients on a Unix socket.

usage: toold [flags]

All settings are in config.toml; environment variables, as
TOOLD_LIMITS_MEMORY=4GiB, and these flags go over it.

  --config FILE          read FILE (default ` + config.DefaultPath + `, if it is
                         there)
  --socket PATH          daemon.socket
  --state-dir DIR        daemon.state_dir
  --run-dir DIR          daemon.run_dir
  --log auto|json|text   daemon.log
  --metrics-listen ADDR  metrics.listen; empty turns it off
  --uid-base N           sandbox.uid_base
  --cgroup-parent PATH   cgroup above those of the sessions (default /toold)
  --ephemeral            a private daemon: when its standard input closes, or on
                         SIGTERM, it ends all its sessions and exits
  --end-sessions         end the sessions that a daemon which has stopped left,
                         and exit
  --check                look at the configuration, report all problems and exit
  --version              print the version and exit

SIGHUP reads the configuration again. SIGTERM and SIGINT stop the daemon; its
sessions go on, and the next toold with the same state directory takes them
over.
`

// settingFlags are the flags that are settings.
var settingFlags = []struct{ flag, key string }{
	{"socket", "daemon.socket"},
	{"state-dir", "daemon.state_dir"},
	{"run-dir", "daemon.run_dir"},
	{"log", "daemon.log"},
	{"metrics-listen", "metrics.listen"},
	{"uid-base", "sandbox.uid_base"},
}

// parseOptions reads the command line. It prints the usage to stderr when asked.
func parseOptions(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("toold", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&o.configPath, "config", "", "")
	fs.StringVar(&o.cgroupParent, "cgroup-parent", "", "")
	fs.BoolVar(&o.ephemeral, "ephemeral", false, "")
	fs.BoolVar(&o.endSessions, "end-sessions", false, "")
	fs.BoolVar(&o.check, "check", false, "")
	fs.BoolVar(&o.version, "version", false, "")
	for _, f := range settingFlags {
		fs.Func(f.flag, "", func(value string) error {
			o.overrides = append(o.overrides, config.Override{Key: f.key, Value: value, Source: "--" + f.flag})
			return nil
		})
	}
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, errHelp) {
			fmt.Fprint(stderr, usage)
			return nil, err
		}
		return nil, fmt.Errorf("%w (see toold --help)", err)
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q (see toold --help)", fs.Arg(0))
	}
	o.cgroupParent = cmp.Or(o.cgroupParent, cgroup.DefaultParent)
	return o, nil
}

// load reads the configuration: file, then environment, then flags. It reports
// the problems of all three together.
func (o *options) load(env []string) (*config.Config, error) {
	fromEnv, unknown, envErr := config.FromEnv(env)
	cfg, err := config.Load(o.configPath, append(fromEnv, o.overrides...)...)
	if err := errors.Join(envErr, err); err != nil {
		if o.configPath != "" && errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w\nname a file that is there, or leave --config out: %s is read then, if it is there", err, config.DefaultPath)
		}
		return nil, fmt.Errorf("configuration:\n%w", err)
	}
	cfg.Warnings = unknown
	if o.ephemeral {
		cfg.Patient()
	}
	return cfg, nil
}
