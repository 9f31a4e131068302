package systemd

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestJournal: in the real journal every line of the daemon has its attributes as
// fields, so that one can ask for all lines of a session or of a call.
func TestJournal(t *testing.T) {
	m := socketStarted(t, nil)
	id := m.run("toolctl", "session", "create", "--name", "s")
	m.run("toolctl", "call", "s", "bash", `{"command":"echo hello"}`)
	m.run("toolctl", "session", "create", "--name", "other")
	m.run("toolctl", "call", "other", "bash", `{"command":"echo hello"}`)
	// A call is answered before it is logged.
	var log string
	m.await("the log has the end of the call", func() bool {
		m.run("journalctl", "--sync")
		log = m.run("journalctl", "--output=json", "TOOLD_SESSION="+id)
		return strings.Contains(log, `"call finished `)
	})
	var finished int
	for line := range strings.Lines(log) {
		var entry map[string]any
		must(t, json.Unmarshal([]byte(line), &entry))
		if entry["TOOLD_SESSION"] != id || entry["_SYSTEMD_UNIT"] != "toold.service" || entry["SYSLOG_IDENTIFIER"] != "toold" || entry["_TRANSPORT"] != "journal" {
			t.Errorf("got %s", line)
		}
		if strings.HasPrefix(entry["MESSAGE"].(string), "call finished ") {
			finished++
			if call, _ := entry["TOOLD_CALL"].(string); !strings.HasPrefix(call, "call_") || entry["TOOLD_TOOL"] != "bash" || entry["PRIORITY"] != "6" {
				t.Errorf("got %s", line)
			}
		}
	}
	if finished != 1 {
		t.Errorf("the journal has %d finished calls of the session, want 1", finished)
	}
}
