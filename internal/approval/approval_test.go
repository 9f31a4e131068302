package approval

import (
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/steady"
	"github.com/toold/toold/internal/store"
)

// What was saved holds until it expires, and rules that are made of it say until when.
func TestSavedExpire(t *testing.T) {
	d := New(Setup{})
	now := time.Now()
	soon, later := now.Add(time.Minute), now.Add(time.Hour)
	for _, v := range []*client.SavedApproval{
		{ID: "1", Tenant: "a", Scope: client.ScopeTenant, Permission: "bash", Pattern: "ls *", Expires: &later},
		{ID: "2", Tenant: "a", Scope: client.ScopeSession, SessionID: "ses_1", Permission: "bash", Pattern: "cat *", Expires: &soon},
		{ID: "3", Tenant: "a", Scope: client.ScopeProfile, Profile: "build", Permission: "bash", Pattern: "id"},
		{ID: "4", Tenant: "b", Scope: client.ScopeTenant, Permission: "bash", Pattern: "rm *"},
	} {
		d.keep([]*store.SavedApproval{{SavedApproval: *v}})
	}
	for _, tt := range []struct {
		session, profile string
		at               time.Time
		rules            int
		until            time.Time
	}{
		{"ses_1", "build", now, 3, soon},
		{"ses_1", "build", soon, 2, later},
		{"ses_2", "build", now, 2, later},
		{"ses_2", "plan", later, 0, time.Time{}},
		{"ses_1", "build", later, 1, time.Time{}},
	} {
		rules, until := d.RulesOf("a", tt.session, tt.profile, tt.at)
		if len(rules) != tt.rules || !until.Equal(tt.until) {
			t.Errorf("%s, %s: %d rules until %v, want %d until %v", tt.session, tt.profile, len(rules), until, tt.rules, tt.until)
		}
	}
	if n := d.Version(); n != 4 {
		t.Errorf("version %d", n)
	}
}

// What was saved for a time holds for that time, whatever is done to the clock of the host.
func TestSavedExpireByTheKernel(t *testing.T) {
	d := New(Setup{})
	now, boot := time.Now(), steady.Now()
	for id, left := range map[string]time.Duration{"back": -time.Second, "forward": time.Hour} {
		wall := now.Add(-time.Hour)
		if id == "back" {
			wall = now.Add(24 * time.Hour)
		}
		d.keep([]*store.SavedApproval{{
			SavedApproval: client.SavedApproval{ID: id, Tenant: "a", Scope: client.ScopeTenant, Permission: "bash", Pattern: id, Expires: &wall},
			Until:         boot.In(left),
		}})
	}
	rules, until := d.RulesOf("a", "ses_1", "", now)
	if len(rules) != 1 || rules[0].Pattern != "forward" || until.Sub(now) > askAgain {
		t.Errorf("%+v until %v", rules, until)
	}
}
