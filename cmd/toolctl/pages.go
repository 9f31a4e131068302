package main

import "github.com/toold/toold/client"

// allPages reads a list to its end. page gives the part that begins after the
// cursor, the first part for "".
func allPages[T any](page func(after string) (*client.List[T], error)) ([]T, error) {
	all, after := []T{}, ""
	for {
		p, err := page(after)
		if err != nil {
			return nil, err
		}
		all = append(all, p.Items...)
		if p.Next == "" || len(p.Items) == 0 {
			return all, nil
		}
		after = p.Next
	}
}
