package shipped

// Setting is one of an agent's configuration that "toolctl mcp --install" writes beside the server.
type Setting struct {
	// File is a file of its own, as the agent looks for it from the directory in which it works; "" for
	// the one that has the servers.
	File string
	// Path are the names that lead to it.
	Path []string
	// Value is a bool, an int or a string, which is set where there is none; a list, whose items are
	// added to those that are there; or an Only.
	Value any
	// Why stands before it where the file has comments.
	Why string
}

// Only is a list that means something else with more items in it: it is set where there is none.
type Only []string
