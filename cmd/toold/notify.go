package main

import (
	"context"
	"log/slog"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
)

// notifier tells systemd how it goes. Without systemd it does nothing.
type notifier struct{ log *slog.Logger }

func (n notifier) send(state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		n.log.Warn("systemd was not told", "state", state, "error", err)
	}
}

func (n notifier) ready(status string) { n.send(sd.SdNotifyReady + "\nSTATUS=" + status) }

func (n notifier) stopping() { n.send(sd.SdNotifyStopping + "\nSTATUS=stopping; sessions go on") }

// reloading must be followed by ready, also when the reload fails.
func (n notifier) reloading() { n.send(sd.SdNotifyReloading + "\n" + sd.SdNotifyMonotonicUsec()) }

// watchdog says "alive" twice per interval for as long as healthy does, until
// ctx ends. A daemon that answers no more is then restarted by systemd, and
// takes its sessions over.
func (n notifier) watchdog(ctx context.Context, healthy func(context.Context) error) {
	interval, err := sd.SdWatchdogEnabled(false)
	if err != nil || interval == 0 {
		return
	}
	tick := time.NewTicker(interval / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := healthy(ctx); err != nil {
				n.log.Error("watchdog: the daemon does not answer itself", "error", err)
				continue
			}
			n.send(sd.SdNotifyWatchdog)
		}
	}
}
