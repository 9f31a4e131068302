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

// Check is doctor's line about ripgrep.
func (p *Programs) Check() client.Check {
	c := client.Check{Group: "host", Name: "ripgrep", Status: client.CheckOK}
	err := p.Ready()
	if err == nil {
		c.Detail, err = RipgrepVersion(p.Ripgrep)
	}
	if err != nil {
		c.Status, c.Detail, c.Hint = client.CheckFail, err.Error(), "glob, grep and list need it: run make build, or make install, again"
	}
	return c
}
