package call

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

type lateness struct{ told []string }

func (l *lateness) late() { l.told = append(l.told, "late") }
func (l *lateness) lost() { l.told = append(l.told, "lost") }

func TestWatch(t *testing.T) {
	for _, tt := range []struct {
		timeout, stop time.Duration
		held          time.Duration // from the beginning
		want          []string
	}{
		{0, time.Hour, 0, nil},
		{time.Second, time.Second + overdue - 1, 0, nil},
		{time.Second, time.Second + 2*overdue - 1, 0, []string{"late"}},
		{time.Second, time.Hour, 0, []string{"late", "lost"}},
		{time.Second, time.Minute + time.Second + overdue - 1, time.Minute, nil},
		{time.Second, time.Hour, time.Minute, []string{"late", "lost"}},
		{time.Second, 10*time.Minute + overdue - 1, time.Hour, nil}, // it is held for at most ten
		{time.Second, 10*time.Minute + 2*overdue - 1, time.Hour, []string{"late"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var l lateness
			var w watch
			w.start(&l, tt.timeout)
			if tt.held > 0 {
				w.hold(10 * time.Minute)
				defer time.AfterFunc(tt.held, func() { w.hold(0) }).Stop()
			}
			time.Sleep(tt.stop)
			w.stop()
			time.Sleep(time.Hour)
			synctest.Wait()
			if !slices.Equal(l.told, tt.want) {
				t.Errorf("of %s, stopped after %s: %q, want %q", tt.timeout, tt.stop, l.told, tt.want)
			}
		})
	}
}
