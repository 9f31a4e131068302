package call

import (
	"os"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/store"
)

// TestStartOfPerson: only a call that an admin's process makes by itself, with nothing by which it is an agent's, may be
// answered where it was made.
func TestStartOfPerson(t *testing.T) {
	t.Parallel()
	me := auth.Principal{PID: int32(os.Getpid()), Admin: true}
	for name, tt := range map[string]struct {
		by   func(*auth.Principal)
		row  func(*client.Call)
		want bool
	}{
		"an admin's":        {want: true},
		"a user's":          {by: func(p *auth.Principal) { p.Admin = false }},
		"of a token":        {by: func(p *auth.Principal) { p.Session = "ses_1" }},
		"of no process":     {by: func(p *auth.Principal) { p.PID = 0 }},
		"of a dead one":     {by: func(p *auth.Principal) { p.PID = 1<<31 - 1 }},
		"of a message":      {row: func(c *client.Call) { c.MessageID = "m" }},
		"of an agent":       {row: func(c *client.Call) { c.Agent = "mcp" }}, // as MCP says for every client
		"of a model":        {row: func(c *client.Call) { c.Model = "m" }},
		"called as typed":   {row: func(c *client.Call) { c.Typed = true }, want: true},
		"typed for a token": {by: func(p *auth.Principal) { p.Session = "ses_1" }, row: func(c *client.Call) { c.Typed = true }},
	} {
		c := &Call{row: store.Call{}}
		c.by = me
		if tt.by != nil {
			tt.by(&c.by)
		}
		if tt.row != nil {
			tt.row(&c.row.Call)
		}
		if got := c.startOfPerson(); (got != 0) != tt.want {
			t.Errorf("%s: %d", name, got)
		}
	}
}
