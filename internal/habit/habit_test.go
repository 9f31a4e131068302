package habit

import "testing"

// TestOf: an agent is known by how the name of its client begins, and all others have no habits.
func TestOf(t *testing.T) {
	t.Parallel()
	for client, want := range map[string]string{
		"copilot-cli": "copilot-cli", "gemini-cli-mcp-client-toold": "gemini-cli-", "qwen-cli-mcp-client-toold": "qwen-",
		"gemini": "", "": "", "x-copilot-cli": "",
	} {
		h := Of(client)
		if h.Client != want || (h.Output() > 0) != (h.Text > 0) || h.Text > 0 && h.Output()+beside > h.Text {
			t.Errorf("%q: %+v", client, h)
		}
	}
}
