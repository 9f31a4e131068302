package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/toold/toold/internal/plain"
)

// ago writes how long ago t was, coarsely.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return span(now.Sub(t))
}

// span writes a duration in its largest unit: 5s, 12m, 3h, 8d.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// seconds writes the duration of a call.
func seconds(ms int64) string { return fmt.Sprintf("%.2fs", float64(ms)/1000) }

// bytesShort writes a number of bytes with three digits at most: 812B, 3.4MiB.
func bytesShort(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	f, i := float64(n), 0
	for f >= 1000 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	if i == 0 || f >= 9.95 {
		return fmt.Sprintf("%.0f%s", f, units[i])
	}
	return fmt.Sprintf("%.1f%s", f, units[i])
}

func plural(n int, what string) string { return plain.Count(n, what, what+"s") }

func timeText(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return t.Local().Format(time.RFC3339)
}

// shortDigest is enough of a digest to tell images apart by eye.
func shortDigest(digest string) string {
	algorithm, hex, ok := strings.Cut(digest, ":")
	if !ok || len(hex) < 12 {
		return digest
	}
	return algorithm + ":" + hex[:12]
}
