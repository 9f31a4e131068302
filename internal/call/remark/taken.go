package remark

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
)

// inUse finds what programs print that could not listen, since the port is taken.
var inUse = regexp.MustCompile(`(?i)address already in use|\bEADDRINUSE\b|port \d+ (is )?(already )?(in use|being used|allocated)|address in use`)

// Taken is what to say where text, what a program has printed, may be about one of these ports, at
// which the daemon listens for what the rules of the session's network are about; else "".
func Taken(row *client.Session, ports []uint16, text ...string) string {
	words := PortWords(row, ports)
	if words == "" || !slices.ContainsFunc(text, inUse.MatchString) {
		return ""
	}
	free := uint16(18080)
	for slices.Contains(ports, free) {
		free++
	}
	return fmt.Sprintf("(in this session no program can listen on %s: the rules of the network take them. Use another port, such as %d)", words, free)
}

// PortWords names the ports that programs of a session cannot listen on; "" for none. A gVisor session
// has a network of its own, in which nothing else listens.
func PortWords(row *client.Session, ports []uint16) string {
	if row.Network.Mode != client.NetworkRules || strings.Contains(row.Runtime, "runsc") || len(ports) == 0 {
		return ""
	}
	all := make([]string, len(ports))
	for i, p := range slices.Sorted(slices.Values(ports)) {
		all[i] = strconv.Itoa(int(p))
	}
	if len(all) == 1 {
		return "port " + all[0]
	}
	return "ports " + plain.Enumerate(all)
}
