package deadline

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

func TestHold(t *testing.T) {
	tests := []struct {
		name             string
		timeout          time.Duration
		hold, release    time.Duration // after the beginning; release 0: never
		most, want       time.Duration
		holdAgain, again time.Duration
	}{
		{name: "not held", timeout: 3 * time.Second, want: 3 * time.Second},
		{name: "held over its end", timeout: 3 * time.Second, hold: time.Second, release: 6 * time.Second, most: time.Minute, want: 8 * time.Second},
		{name: "held twice", timeout: 3 * time.Second, hold: time.Second, release: 2 * time.Second, holdAgain: 3 * time.Second, again: 10 * time.Second, most: time.Minute, want: 11 * time.Second},
		{name: "held for too long", timeout: 3 * time.Second, hold: time.Second, most: 10 * time.Second, want: 10 * time.Second},
		{name: "released with more than there is", timeout: 8 * time.Second, hold: time.Second, release: 5 * time.Second, most: 10 * time.Second, want: 10 * time.Second},
		{name: "later than the bound by itself", timeout: 8 * time.Second, hold: time.Second, release: 5 * time.Second, most: 6 * time.Second, want: 8 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New()
				began := time.Now()
				ctx, cancel := c.WithTimeout(t.Context(), tt.timeout)
				defer cancel()
				below, cancelBelow := context.WithCancel(ctx)
				defer cancelBelow()
				var called time.Duration
				defer AfterFunc(below, tt.timeout, func() { called = time.Since(began) })()
				for _, step := range []struct {
					at time.Duration
					do func()
				}{
					{tt.hold, func() { c.Hold(tt.most); c.Hold(time.Hour) }},
					{tt.release, c.Release},
					{tt.holdAgain, func() { c.Hold(tt.most) }},
					{tt.again, c.Release},
				} {
					if step.at > 0 {
						time.Sleep(step.at - time.Since(began))
						step.do()
					}
				}
				at, ok := below.Deadline()
				if got := at.Sub(began); !ok || got != tt.want {
					t.Errorf("the deadline is %s, want %s", got, tt.want)
				}
				<-below.Done()
				synctest.Wait()
				if got := time.Since(began); got != tt.want || called != tt.want {
					t.Errorf("it ended after %s, and its function was called after %s, want %s", got, called, tt.want)
				}
				if !errors.Is(context.Cause(below), context.DeadlineExceeded) {
					t.Errorf("cause %v", context.Cause(below))
				}
			})
		})
	}
}

// Random holds against the rule in one line: what is left goes down only while it is not held.
func TestRandomHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 200 {
			c := New()
			left, most := time.Duration(1+rand.IntN(50))*time.Second, time.Duration(rand.IntN(100))*time.Second
			began, held, rang := time.Now(), false, time.Duration(-1)
			stop := c.AfterFunc(left, func() { rang = time.Since(began) })
			end := left // when it is to ring
			for at := time.Duration(0); ; at += time.Second {
				synctest.Wait()
				if !held && at >= end || held && at >= max(end, most) {
					if want := map[bool]time.Duration{false: end, true: max(end, most)}[held]; rang != want {
						t.Fatalf("left %s, most %s: it rang after %s, want %s", left, most, rang, want)
					}
					break
				}
				if rang >= 0 {
					t.Fatalf("left %s, most %s: it rang after %s, before %s", left, most, rang, end)
				}
				if rand.IntN(3) == 0 {
					if held = !held; held {
						c.Hold(most)
					} else {
						c.Release()
					}
				}
				time.Sleep(time.Second)
				if held && end < most {
					end += time.Second
				}
			}
			stop()
			c.Release()
		}
	})
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		stop := c.AfterFunc(time.Second, func() { t.Error("it was stopped") })
		c.Hold(time.Minute)
		stop()
		c.Release()
		time.Sleep(time.Hour)
	})
}
