package run

import (
	"errors"
	"hash/crc32"
	"slices"
	"strings"
)

// noTool begins what an agent says of a tool that it has not; agents of all versions do.
const noTool = "the agent has no tool "

// NoTool is the error of an agent that is asked for a tool that it has not.
func NoTool(name string) error { return Errorf(CodeInternal, "%s%.64q", noTool, name) }

// IsNoTool reports whether an agent says that it has not the tool that it was asked for.
func IsNoTool(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == CodeInternal && strings.HasPrefix(e.Message, noTool)
}

// Fingerprint is a number that stands for the names of tools, in any order.
func Fingerprint(tools []Tool) uint32 {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Name()
	}
	slices.Sort(names)
	return crc32.ChecksumIEEE([]byte(strings.Join(names, "\n")))
}
