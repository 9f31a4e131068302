package agents

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/toold/toold/internal/testrig"

	"github.com/toold/toold/client"
)

// apart are scenarios of the protocol's conformance suite that do not apply, each with the
// reason. One that passes after all fails the test.
var apart = map[string]string{
	"completion-complete":           "there is nothing to complete",
	"tools-call-image":              "it calls a tool of the suite's own server; TestResources has an image",
	"tools-call-audio":              "it calls a tool of the suite's own server",
	"tools-call-embedded-resource":  "it calls a tool of the suite's own server",
	"tools-call-mixed-content":      "it calls a tool of the suite's own server",
	"tools-call-with-logging":       "it calls a tool of the suite's own server; TestApproval has the log",
	"tools-call-with-progress":      "it calls a tool of the suite's own server; TestCancel has progress",
	"tools-call-sampling":           "clients are not asked to sample",
	"tools-call-elicitation":        "people are asked by approvals, not through the client",
	"elicitation-sep1034-defaults":  "people are asked by approvals, not through the client",
	"elicitation-sep1330-enums":     "people are asked by approvals, not through the client",
	"resources-read-text":           "it reads a resource of the suite's own server; TestResources reads ours",
	"resources-read-binary":         "it reads a resource of the suite's own server; TestResources reads ours",
	"resources-templates-read":      "it reads a resource of the suite's own server; TestResources reads ours",
	"resources-subscribe":           "resources are not watched",
	"resources-unsubscribe":         "resources are not watched",
	"prompts-get-simple":            "there are no prompts",
	"prompts-get-with-args":         "there are no prompts",
	"prompts-get-embedded-resource": "there are no prompts",
	"prompts-get-with-image":        "there are no prompts",
	"dns-rebinding-protection":      "every request with an Origin is refused, that of localhost too; and a socket has no name in the DNS",
}

// TestConformance: the scenarios of the protocol's own suite that apply pass.
func TestConformance(t *testing.T) {
	suite := installed(t, "@modelcontextprotocol/conformance/dist/index.js")
	d := startDaemon(t)
	s, err := d.client.CreateSession(t.Context(), client.SessionCreate{})
	testrig.Must(t, err)
	cmd := exec.CommandContext(t.Context(), installed(t, "node-linux-*/bin/node"), suite, "server", "--url", d.tcp()+"/v1/sessions/"+s.ID+"/mcp")
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "NO_COLOR=1")
	out, _ := cmd.CombinedOutput() // it fails for those that do not apply
	found := regexp.MustCompile(`(?m)^(✓|✗) ([a-z0-9-]+): \d+ passed`).FindAllSubmatch(out, -1)
	if len(found) < len(apart)+8 {
		t.Fatalf("%d scenarios were run:\n%s", len(found), out)
	}
	for _, m := range found {
		switch name, passed := string(m[2]), string(m[1]) == "✓"; {
		case !passed && apart[name] == "":
			t.Errorf("%s fails", name)
		case passed && apart[name] != "":
			t.Errorf("%s passes: take it out of the table", name)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}

// tcp is the daemon's address for clients that know no sockets but those of TCP.
func (d *daemon) tcp() string {
	proxy := httptest.NewServer(testrig.Proxy(d.t, d.socket))
	d.t.Cleanup(proxy.Close)
	return proxy.URL
}
