package main

import (
	"runtime"
	"runtime/debug"

	"github.com/toold/toold/client"
)

// version is set by the build (-ldflags "-X main.version=…").
var version = "dev"

func versionInfo() client.Version {
	v := client.Version{Version: version, GoVersion: runtime.Version(), API: "v1"}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Commit = s.Value
			}
		}
	}
	return v
}
