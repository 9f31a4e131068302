package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/toold/toold/internal/testrig"
)

// programs is the directory of the binaries under test, with the runtime beside
// them.
var programs string

// why is the reason that this machine cannot run the scripts; "" when it can.
var why string

func TestMain(m *testing.M) {
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	dir, err := testrig.MkdirTemp(prefix)
	if err == nil {
		// testscript makes its directories there, and leaves some behind when
		// only a part of the scripts runs.
		err = os.Setenv("GOTMPDIR", dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs = filepath.Join(dir, "bin")
	if why = build(programs); why != "" && testrig.Required("oci") {
		fmt.Fprintln(os.Stderr, "the scripts are required here but cannot run:", why)
		return 1
	}
	return m.Run()
}

// prefix begins the names of all directories and cgroups of these tests.
const prefix = "toold-cli-"

// build compiles what is tested and finds the runtime; it returns why it cannot.
func build(dir string) string {
	if os.Getuid() != 0 {
		return "not root"
	}
	if _, err := testrig.Bin("runc"); err != nil {
		return err.Error()
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err.Error()
	}
	if err := testrig.Build(dir, "cmd/toold", "cmd/toolctl", "cmd/toolagent"); err != nil {
		return err.Error()
	}
	return ""
}

func TestScripts(t *testing.T) {
	if why != "" {
		t.Skip(why)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			r, err := newRig(e)
			if err != nil {
				return err
			}
			e.Values[rigKey{}] = r
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"daemon":       cmdDaemon,
			"reloaddaemon": cmdReloadDaemon,
			"killdaemon":   cmdKillDaemon,
			"exits":        cmdExits,
			"eventually":   cmdEventually,
			"setvar":       cmdSetvar,
			"terminal":     cmdTerminal,
			"narrow":       cmdNarrow,
			"privatedir":   cmdPrivateDir,
			"block":        cmdBlock,
			"junit":        cmdJUnit,
		},
		RequireUniqueNames: true,
	})
}
