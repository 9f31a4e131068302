package trees

import (
	"bytes"
	"errors"
	"io"
)

// maxGated is how much of a patch is held until it is known to be the session's own, in bytes. A
// patch that has no more needs one look at the source, behind it.
const maxGated = 4 << 20

// errShut: what a gate has is not to be passed on.
var errShut = errors.New("the patch takes back what somebody has done")

// gate holds what is written to it until it is known whether that may be passed on.
type gate struct {
	to   io.Writer
	may  func() bool // is asked once, when there is more than is held, or all is there
	held bytes.Buffer

	open, shut bool
}

// Write implements io.Writer.
func (g *gate) Write(p []byte) (int, error) {
	if !g.open && g.held.Len()+len(p) <= maxGated {
		return g.held.Write(p)
	}
	if err := g.pass(); err != nil {
		return 0, err
	}
	return g.to.Write(p)
}

// pass passes on what is held, or fails with errShut.
func (g *gate) pass() error {
	if g.open {
		return nil
	}
	if g.shut = g.shut || !g.may(); g.shut {
		return errShut
	}
	g.open = true
	_, err := g.held.WriteTo(g.to)
	g.held = bytes.Buffer{}
	return err
}
