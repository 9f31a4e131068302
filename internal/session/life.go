package session

// life makes sessions, takes them over and ends them, part by part.
type life struct {
	*roster
	parts []part // of every session
}
