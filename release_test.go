package toold_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/store"
)

// TestRelease: the newest heading of the changelog is the release that is built, and says which format
// the state directory has.
func TestRelease(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`(?m)^## (.*)\n\n(?:.*\n)*?.*the state directory has the format ([0-9]+)`).FindStringSubmatch(string(text))
	if all == nil || all[1] != client.Release || all[2] != fmt.Sprint(store.Format) {
		t.Errorf("CHANGELOG.md begins with %q, want release %s and format %d", all, client.Release, store.Format)
	}
	if !regexp.MustCompile(`^[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}$`).MatchString(client.Release) {
		t.Errorf("%q is not three numbers below 1000, which the store keeps as one", client.Release)
	}
	for _, program := range []string{"toold", "toolctl"} {
		bin := filepath.Join(t.TempDir(), program)
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./cmd/"+program).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		out, err := exec.CommandContext(t.Context(), bin, "--version").CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), program+" "+client.Release) {
			t.Errorf("%s --version: %v, %s", program, err, out)
		}
	}
	made, err := exec.CommandContext(t.Context(), "make", "-n", "build", "-o", "deps").CombinedOutput()
	if err != nil || !strings.Contains(string(made), "-X main.version="+client.Release) {
		t.Errorf("make builds another version: %v\n%s", err, made)
	}
}
