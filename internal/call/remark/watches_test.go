package remark

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/toold/toold/client"
)

func TestWatching(t *testing.T) {
	host := fstest.MapFS{
		"proc/sys/fs/inotify/max_user_instances": {Data: []byte("128\n")},
		"proc/sys/fs/inotify/max_user_watches":   {Data: []byte("65536\n")},
	}
	row := &client.Session{Driver: "oci", Runtime: "runc", Limits: client.Limits{OpenFiles: 1024}}
	for text, want := range map[string]bool{
		"Unhandled exception. System.IO.IOException: The configured user limit (128) on the number of inotify instances has been reached, or the per-process limit": true,
		"Error: EMFILE: too many open files, watch '/workspace/src'":                    true,
		"Error: ENOSPC: System limit for number of file watchers reached, watch '/w/x'": true,
		"inotify_init1: too many open files":                                            true,
		"OSError: [Errno 24] inotify instance limit reached":                            true,
		"tail: inotify resources exhausted":                                             true,
		"tail: inotify cannot be used, reverting to polling: Too many open files":       true,
		"error: Too many open files (os error 24)":                                      true,
		"inotify_add_watch(3, \"/w\"): No space left on device":                         true,
		"cp: error writing 'x': No space left on device":                                false,
		"using inotify":                            false,
		"ENOSPC: no space left on device, write":   false,
		"tests of inotify: 3 passed, 1 has failed": false,
	} {
		got := Watching(row, host, "", text)
		if (got != "") != want || want && !strings.Contains(got, "16 inotify instances and 8192 watches of files, and a program 1024 open files (limits.open_files)") {
			t.Errorf("%s: %q", text, got)
		}
		for _, other := range []*client.Session{{Driver: "docker"}, {Driver: "oci", Runtime: "runsc"}} {
			if got := Watching(other, host, text); got != "" {
				t.Errorf("%s: %s", other.Runtime, got)
			}
		}
	}
	if n, m := Instances(row, fstest.MapFS{}); n != 0 || m != 0 {
		t.Errorf("of an unknown host: %d, %d", n, m)
	}
}
