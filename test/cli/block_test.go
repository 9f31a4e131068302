package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// A block is what a document shows to be typed:
//
//	<!-- test/cli/testdata/doc_x.txtar: NAME -->
//	```sh
//	…
//	```
var blockMark = regexp.MustCompile("(?m)^<!-- test/cli/[^ ]+: ([a-z0-9-]+) -->\n```[a-z]+\n((?s:.*?))^```$")

// readBlock returns the block of a document that has this name.
func readBlock(document, name string) (string, error) {
	text, err := os.ReadFile(filepath.Join("../..", document))
	if err != nil {
		return "", err
	}
	for _, m := range blockMark.FindAllStringSubmatch(string(text), -1) {
		if m[1] == name {
			return m[2], nil
		}
	}
	return "", fmt.Errorf("%s has no block %q", document, name)
}

// block is readBlock with other places of toold's, and of the host's.
func (r *rig) block(t *testing.T, document, name string, places ...string) string {
	t.Helper()
	text, err := readBlock(document, name)
	if err != nil {
		t.Fatal(err)
	}
	places = append([]string{"/run/toold/toold.sock", r.socket, "/var/lib/toold", filepath.Join(r.dir, "state")}, places...)
	return strings.NewReplacer(places...).Replace(text)
}

// cmdBlock writes a block to a file. Only where the daemon listens is another place
// than in the document.
func cmdBlock(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: block FILE NAME")
	}
	text, err := readBlock(args[0], args[1])
	ts.Check(err)
	text = strings.ReplaceAll(text, "/run/toold/toold.sock", ts.Getenv("SOCKET"))
	ts.Check(os.WriteFile(ts.MkAbs(args[1]+".sh"), []byte(text), 0o644))
}
