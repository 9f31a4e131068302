package main

import (
	"runtime"
	"runtime/debug"

	"github.com/toold/toold/client"
)

// version is what the build says (-ldflags "-X main.version=…"), which has the commit too.
var version = client.Release

// versionInfo is what this daemon is; ripgrep is which one it brings into sandboxes.
func versionInfo(ripgrep string) client.Version {
	v := client.Version{Version: version, GoVersion: runtime.Version(), API: "v1", Ripgrep: ripgrep}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Commit = s.Value
			}
		}
	}
	return v
}
