package main

import (
	"fmt"

	"github.com/toold/toold/client"
)

// The numbers of SGR foreground colours.
const (
	colorRed    = 31
	colorGreen  = 32
	colorYellow = 33
	colorCyan   = 36
	colorGrey   = 90
)

func colors(tty bool, getenv func(string) string) bool {
	return tty && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

// painted is text in a colour, where there are colours.
func painted(text string, color int, on bool) string {
	if !on || color == 0 {
		return text
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", color, text)
}

// actionColor is the colour of a verdict.
func actionColor(action string) int {
	switch action {
	case "allow":
		return colorGreen
	case "deny":
		return colorRed
	}
	return colorYellow
}

func stateColor(s client.SessionState) int {
	switch s {
	case client.SessionReady:
		return colorGreen
	case client.SessionLost:
		return colorRed
	case client.SessionEnded:
		return colorGrey
	}
	return colorYellow
}
