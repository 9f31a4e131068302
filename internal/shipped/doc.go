// Package shipped runs coding agents as they ship, each with a home of its own and a
// scripted model on loopback in place of its own, and looks at what that model receives.
package shipped
