package config

import "github.com/toold/toold/internal/tomltext"

// Problem is one thing that is wrong with a configuration.
type Problem = tomltext.Problem

// Problems gives the list behind err, or nil when err is something else (a file
// that cannot be read).
func Problems(err error) []Problem { return tomltext.Problems(err) }
