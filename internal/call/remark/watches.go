package remark

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/hardening"
)

// watching finds what programs print that watch files and got no more of the kernel's means for it,
// or no more open files, which some of them call by the same name.
var watching = regexp.MustCompile(`(?i)inotify(_init1?|_add_watch)?\b.{0,80}(too many open files|no space left|EMFILE|ENOSPC|limit reached|has been reached|exhausted|cannot be used)|` +
	`(too many open files|EMFILE|ENOSPC|no space left on device).{0,80}\b(inotify|watch(es|er|ers|ing)?)\b|number of (file watchers|inotify instances)|too many open files`)

// Instances are how many inotify instances and watches the programs of a session can have together;
// 0 where they have no number of their own.
func Instances(row *client.Session, host fs.FS) (instances, watches int) {
	if row.Driver != "oci" || strings.Contains(row.Runtime, "runsc") {
		return 0, 0
	}
	instances, watches = hardening.Watches(host)
	return instances / hardening.WatchShare, watches / hardening.WatchShare
}

// Watching is what to say where text, what a failed program has printed, is about watches of files;
// else "".
func Watching(row *client.Session, host fs.FS, text ...string) string {
	if !slices.ContainsFunc(text, watching.MatchString) {
		return ""
	}
	instances, watches := Instances(row, host)
	if instances == 0 {
		return ""
	}
	files := ""
	if n := row.Limits.OpenFiles; n > 0 {
		files = fmt.Sprintf(", and a program %d open files (limits.open_files)", n)
	}
	return fmt.Sprintf("(a session can have %d inotify instances and %d watches of files%s: end programs that watch files, such as test and build servers, "+
		"or have them poll: CHOKIDAR_USEPOLLING=1, DOTNET_USE_POLLING_FILE_WATCHER=1, WATCHPACK_POLLING=true. More of the first two need a higher "+
		"fs.inotify.max_user_instances and max_user_watches of the host, of which a session has an eighth)", instances, watches, files)
}
