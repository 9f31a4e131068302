package session

// partsOf are the parts of every session, in the order in which they are claimed,
// opened and adopted. They are closed the other way round: uids are not given back,
// nor the image, while something of the sandbox may be alive.
func partsOf(r *roster) []part {
	return []part{
		outputs{roster: r},
		uids{roster: r},
		runImage{roster: r},
		overlay{roster: r},
		transactions{roster: r},
		caching{roster: r},
		disks{roster: r},
		box{roster: r},
		network{roster: r},
		leaseProcess{},
	}
}
