// Package demo tests the demonstration: whatever holds the session, it prints the
// same calls with the same answers. It has tests only.
//
// The tests run scripts/demo with the programs in bin/, need root and what each
// tier needs, and are skipped elsewhere with the reason;
// TOOLD_TEST_REQUIRE=oci,runsc,docker makes a failure of that.
package demo
