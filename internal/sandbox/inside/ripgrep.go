package inside

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/toold/toold/client"
)

// RipgrepVersion is what the ripgrep in dir is, as scripts/install-ripgrep says it, such
// as "15.0.0, static".
func RipgrepVersion(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "version"))
	return strings.TrimSpace(string(text)), err
}

// RipgrepCheck is doctor's line about it.
func RipgrepCheck(dir string) client.Check {
	c := client.Check{Group: "host", Name: "ripgrep", Status: client.CheckOK}
	var err error
	if c.Detail, err = RipgrepVersion(dir); err != nil {
		c.Status, c.Detail, c.Hint = client.CheckFail, err.Error(), "glob, grep and list need it: run make build, or make install, again"
	}
	return c
}
