// Package agents tests toold as agents use it: programs as they ship, with toold as their
// only hands. It has tests only.
//
// The tests run toolctl mcp and the daemon's route for MCP, and need root and runc;
// TOOLD_TEST_REQUIRE=oci makes a failure of a skip. The agents themselves come from npm,
// by scripts/install-agents, and a scripted model on loopback tells them what to do;
// TOOLD_TEST_REQUIRE=agents wants them.
package agents
