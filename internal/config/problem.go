package config

import "github.com/toold/toold/internal/tomltext"

// Problem is one thing that is wrong with a configuration.
type Problem = tomltext.Problem

// Error is all problems of one configuration, in the order of its lines.
type Error = tomltext.Error

// Problems gives the list behind err, or nil when err is something else (a file
// that cannot be read).
func Problems(err error) []Problem { return tomltext.Problems(err) }
