package trees

import "github.com/toold/toold/client"

// maxHeld and maxHeldBytes bound the changes of a survey that are held, and what their paths have
// together: where there are more, the sandbox lists them again.
const (
	maxHeld      = 40_000
	maxHeldBytes = 8 << 20
)

// held are the pages of a survey.
type held struct {
	pages        []client.Changes
	items, bytes int
	over         bool // there are more than are held
}

func (h *held) add(c *client.Changes) {
	for i := range c.Items {
		h.bytes += len(c.Items[i].Path) + len(c.Items[i].Bytes)
	}
	h.items += len(c.Items)
	if h.over = h.over || h.items > maxHeld || h.bytes > maxHeldBytes; h.over {
		h.pages = nil
		return
	}
	h.pages = append(h.pages, *c)
}

// again visits all that the survey has found; where it is not held, list lists it again.
func (h *held) again(list func(each func(*client.Changes) error) error, each func(*client.Changes) error) error {
	if h.over {
		return list(each)
	}
	for i := range h.pages {
		c := h.pages[i] // which has the items in common, and none of them is changed
		if err := each(&c); err != nil {
			return err
		}
	}
	return nil
}
