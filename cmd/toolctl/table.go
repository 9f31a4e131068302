package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/toold/toold/client"
)

// table is aligned text: the same on a terminal and in a pipe, but for colour.
type table struct {
	rows  [][]cell
	color bool
}

// cell is one field. Its text is safe to show; color is the number of an SGR
// foreground colour, 0 for none.
type cell struct {
	text  string
	color int
}

const (
	colorRed    = 31
	colorGreen  = 32
	colorYellow = 33
	colorCyan   = 36
	colorGrey   = 90
)

func (a *app) newTable(headers ...string) *table {
	t := &table{color: a.color()}
	t.row(headers...)
	return t
}

// color reports whether standard output may have colours.
func (a *app) color() bool { return colors(a.outTTY, a.getenv) }

func colors(tty bool, getenv func(string) string) bool {
	return tty && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

// row adds a line; its texts may be hostile.
func (t *table) row(texts ...string) {
	cells := make([]cell, len(texts))
	for i, s := range texts {
		cells[i].text = line(s)
	}
	t.rows = append(t.rows, cells)
}

// paint colours a field of the last row.
func (t *table) paint(column, color int) { t.rows[len(t.rows)-1][column].color = color }

// write prints all rows; the last column is not padded.
func (t *table) write(w io.Writer) {
	widths := t.widths()
	var b strings.Builder
	for _, row := range t.rows {
		for i, c := range row {
			text := c.text
			if text == "" {
				text = "-"
			}
			b.WriteString(painted(text, c.color, t.color))
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-width(text)+2))
			}
		}
		b.WriteByte('\n')
	}
	_, _ = io.WriteString(w, b.String())
}

func (t *table) widths() []int {
	var widths []int
	for _, row := range t.rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 1)
			}
			widths[i] = max(widths[i], width(c.text))
		}
	}
	return widths
}

// width counts the columns of s on a terminal.
func width(s string) int {
	n := 0
	for _, r := range s {
		n += columns(r)
	}
	return n
}

// columns is how many columns a character takes: none for marks that combine
// with the one before, two for the wide ones of East Asian scripts and emoji.
func columns(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case r == 0x200c || r == 0x200d || unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}

// wide are the blocks whose characters terminals draw two columns wide. Some
// other characters may be as well; a line is then broken early by the terminal.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x1100, 0x115f, 1},
		{0x2e80, 0x303e, 1},
		{0x3041, 0xa4cf, 1},
		{0xa960, 0xa97f, 1},
		{0xac00, 0xd7a3, 1},
		{0xf900, 0xfaff, 1},
		{0xfe30, 0xfe6f, 1},
		{0xff00, 0xff60, 1},
		{0xffe0, 0xffe6, 1},
	},
	R32: []unicode.Range32{{0x1f300, 0x1f64f, 1}, {0x1f680, 0x1f6ff, 1}, {0x1f900, 0x1f9ff, 1}, {0x20000, 0x3fffd, 1}},
}

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

// painted is text in a colour, where there are colours.
func painted(text string, color int, on bool) string {
	if !on || color == 0 {
		return text
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", color, text)
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
