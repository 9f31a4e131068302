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
		want          []string
	}{
		{0, time.Hour, nil},
		{time.Second, time.Second + overdue - 1, nil},
		{time.Second, time.Second + 2*overdue - 1, []string{"late"}},
		{time.Second, time.Hour, []string{"late", "lost"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var l lateness
			var w watch
			w.start(&l, tt.timeout)
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
