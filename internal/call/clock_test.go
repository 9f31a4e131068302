package call

import (
	"testing"
	"time"

	"github.com/toold/toold/client"
)

func TestDurations(t *testing.T) {
	now := time.Now()
	at := func(d time.Duration) time.Time { return now.Add(d) }
	stored := at(time.Millisecond)
	for _, tt := range []struct {
		name        string
		clock       clock
		stored      client.CallTime
		queued, ran time.Duration
	}{
		{
			"seen from its beginning",
			clock{at(0), at(200 * time.Microsecond), at(500 * time.Microsecond)},
			client.CallTime{Queued: at(0), Started: &stored},
			200 * time.Microsecond, 300 * time.Microsecond,
		},
		{
			"never ran",
			clock{came: at(0), ended: at(5 * time.Second)},
			client.CallTime{Queued: at(0)},
			5 * time.Second, 0,
		},
		{
			"begun by an earlier daemon",
			clock{ended: at(4 * time.Second)},
			client.CallTime{Queued: at(0), Started: &stored},
			time.Millisecond, 3999 * time.Millisecond,
		},
		{
			"came to an earlier daemon, ran in this one",
			clock{ran: at(time.Second), ended: at(3 * time.Second)},
			client.CallTime{Queued: at(0), Started: &stored},
			time.Second, 2 * time.Second,
		},
	} {
		if queued, ran := tt.clock.durations(&tt.stored); queued != tt.queued || ran != tt.ran {
			t.Errorf("%s: waited %s and ran %s, want %s and %s", tt.name, queued, ran, tt.queued, tt.ran)
		}
	}
}
