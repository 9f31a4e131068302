package call

import "testing"

// TestOpenedEnds: an answer that comes when the call is over holds for nothing, and one that came before
// holds until then.
func TestOpenedEnds(t *testing.T) {
	t.Parallel()
	var before, late opened
	before.begin("network a")
	if holds := before.end("network a", true, true); !holds || !before.allowed("network a") {
		t.Error("an answer in time does not hold")
	}
	if before.closed() || !before.close() || !before.closed() || before.allowed("network a") {
		t.Error("an answer holds for a call that is over")
	}
	late.begin("network a")
	if late.close() {
		t.Error("something was allowed that is being asked about")
	}
	if holds := late.end("network a", true, true); holds || late.allowed("network a") {
		t.Error("an answer after the end holds")
	}
}
