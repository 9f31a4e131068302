package main

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/toold/toold/client"
)

func parseBudget(flags []string) (b client.Budget, err error) {
	fields := map[string]any{"calls": &b.Calls, "cpu": &b.CPU, "wall": &b.Wall, "output": &b.Output}
	for _, kv := range flags {
		k, v, _ := strings.Cut(kv, "=")
		field := fields[k]
		if field == nil || v == "" {
			return b, usagef("--budget %q: write one or more of calls=200, cpu=10m, wall=30m, output=1GiB", kv)
		}
		if err := setField(field, v); err != nil {
			return b, usagef("--budget %s: %w", kv, err)
		}
		if reflect.ValueOf(field).Elem().IsZero() {
			return b, usagef("--budget %s: a session that may use nothing can do nothing; for no bound leave %s out", kv, k)
		}
	}
	return b, nil
}

// budgetText says what a session may use in all, and what is left of it.
func budgetText(s *client.Session) string {
	b, left := s.Budget, s.BudgetLeft
	if b == nil {
		return ""
	}
	if left == nil {
		left = &client.BudgetLeft{}
	}
	var parts []string
	add := func(name string, most any, left string) {
		parts = append(parts, fmt.Sprintf("%s %v%s", name, most, left))
	}
	if b.Calls > 0 {
		add("calls", b.Calls, leftText(left.Calls))
	}
	if b.CPU > 0 {
		add("cpu", b.CPU, leftText(rounded(left.CPU)))
	}
	if b.Wall > 0 {
		add("wall", b.Wall, leftText(rounded(left.Wall)))
	}
	if b.Output > 0 {
		add("output", b.Output, leftText(left.Output))
	}
	return strings.Join(parts, ", ")
}

func leftText[T any](left *T) string {
	if left == nil {
		return ""
	}
	return fmt.Sprintf(" (%v left)", *left)
}

// rounded cuts a time to what a person reads.
func rounded(d *client.Duration) *time.Duration {
	if d == nil {
		return nil
	}
	short := time.Duration(*d).Round(100 * time.Millisecond)
	return &short
}
