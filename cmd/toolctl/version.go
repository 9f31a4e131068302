package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/toold/toold/client"
)

// version is what the build says (-ldflags "-X main.version=…"), which has the commit too.
var version = client.Release

// versions is what `toolctl version` prints; its JSON names are stable.
type versions struct {
	Client client.Version  `json:"client"`
	Server *client.Version `json:"server,omitempty"`
	// Error says why there is no Server.
	Error string `json:"error,omitempty"`
}

// versionLine is what --version prints, which asks no daemon.
func versionLine() string { return "toolctl " + describeVersion(ownVersion()) }

func newVersionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Show the versions of toolctl and of the daemon",
		Example: "  toolctl version\n  toolctl version -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			v := versions{Client: ownVersion()}
			ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second)
			defer cancel()
			var err error
			if v.Server, err = a.client().Version(ctx); err != nil {
				v.Error = err.Error() // toolctl's own version needs no daemon
			}
			return a.print(view{data: v, names: []string{v.Client.Version}, text: v.text})
		},
	}
}

func (v versions) text(w io.Writer) {
	fmt.Fprintf(w, "toolctl %s\n", describeVersion(v.Client))
	if v.Server != nil {
		fmt.Fprintf(w, "toold   %s\n", describeVersion(*v.Server))
	} else {
		fmt.Fprintf(w, "toold   not reached: %s\n", line(v.Error))
	}
}

func describeVersion(v client.Version) string {
	s := v.Version
	if v.Commit != "" {
		s += " (" + v.Commit + ")"
	}
	if v.Ripgrep != "" {
		return line(fmt.Sprintf("%s, API %s, %s, ripgrep %s", s, v.API, v.GoVersion, v.Ripgrep))
	}
	return line(fmt.Sprintf("%s, API %s, %s", s, v.API, v.GoVersion))
}

func ownVersion() client.Version {
	v := client.Version{Version: version, GoVersion: runtime.Version(), API: "v1"}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Commit = s.Value[:min(12, len(s.Value))]
			}
		}
	}
	return v
}
