package client

// Budget is how much a session may do in all. It ends with the reason "budget" when it has
// used one of them up; 0 is no bound.
type Budget struct {
	Calls  int64    `json:"calls,omitempty"`  // of tools; uploads and downloads do not count
	CPU    Duration `json:"cpu,omitempty"`    // time of all its processes on all cores
	Wall   Duration `json:"wall,omitempty"`   // since it was created
	Output Size     `json:"output,omitempty"` // bytes that its calls print
}

// BudgetLeft is what is left of a Budget; nil where there is no bound.
type BudgetLeft struct {
	Calls  *int64    `json:"calls,omitempty"`
	CPU    *Duration `json:"cpu,omitempty"`
	Wall   *Duration `json:"wall,omitempty"`
	Output *Size     `json:"output,omitempty"`
}
