package call

import "github.com/toold/toold/internal/tool"

// ofPeople reports whether people alone make such a call, by typing it or by a route of ours.
func ofPeople(def *tool.Definition, typed bool) bool { return def.Hidden || typed }
