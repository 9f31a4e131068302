package remark

import "testing"

// What programs have printed that found no terminal, and what others have that failed.
func TestNoTerminal(t *testing.T) {
	for _, text := range []string{
		"the input device is not a TTY",
		"Vim: Warning: Output is not to a terminal\nstdin is not a terminal",
		"stty: 'standard input': Inappropriate ioctl for device",
		"TERM environment variable not set.",
		"top: failed tty get\nError opening terminal: unknown.",
		"sudo: no tty present and no askpass program specified",
		"bash: /dev/tty: No such device or address",
		"ssh_askpass: could not open /dev/tty",
	} {
		if NoTerminal("", text) != terminalHint {
			t.Errorf("no hint under %q", text)
		}
	}
	for _, text := range []string{"", "FAIL: TestTerminal", "undefined: tty", "no such file or directory", "a terminal condition", "exit status 1"} {
		if got := NoTerminal(text); got != "" {
			t.Errorf("%q has %q under it", text, got)
		}
	}
}
