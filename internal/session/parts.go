package session

// partsOf are the parts of every session of m, in the order in which they are claimed,
// opened and adopted. They are closed the other way round: uids are not given back,
// nor the image, while something of the sandbox may be alive.
func partsOf(m *roster) []part {
	return []part{outputs{m: m}, uids{m: m}, runImage{m: m}, overlay{m: m}, box{m: m}, leaseProcess{}}
}
