package main

import (
	"cmp"
	"fmt"
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

// wordColors are the colours of verdicts, and of the states of sessions, daemons and checks.
var wordColors = map[string]int{
	"allow": colorGreen, "ready": colorGreen, "ok": colorGreen,
	"deny": colorRed, "lost": colorRed, "failing": colorRed, "fail": colorRed,
	"ended": colorGrey, "n/a": colorGrey,
}

// wordColor is yellow for what lies between.
func wordColor[T ~string](word T) int { return cmp.Or(wordColors[string(word)], colorYellow) }
