// Package procstat reads /proc/PID/stat, in which a process may have written its own name.
package procstat

import (
	"bytes"
	"fmt"
	"strconv"
)

// Fields, as proc(5) counts them.
const (
	State      = 3
	Group      = 5
	Terminal   = 7
	Foreground = 8 // the group in the foreground of the terminal
	Start      = 22
	ArgEnd     = 49
	EnvEnd     = 51
)

// Text is one field, by its number from 3 on.
func Text(stat []byte, field int) (string, error) {
	// The second field is the name, which may hold anything.
	name := bytes.LastIndexByte(stat, ')')
	fields := bytes.Fields(stat[name+1:])
	if name < 0 || field < State || len(fields) <= field-State {
		return "", fmt.Errorf("/proc/PID/stat has no field %d", field)
	}
	return string(fields[field-State]), nil
}

// Number is one that is a number.
func Number(stat []byte, field int) (int64, error) {
	text, err := Text(stat, field)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(text, 10, 64)
}
