// Package attack holds the attack tests: what a hostile session, a hostile local
// user or an unlucky moment does to a real daemon with real containers, and what
// must be seen. Every test runs beside a neighbour session of another tenant,
// has a negative control that shows that the attack works where the defence is
// missing, and ends with the same invariants (see invariants_test.go).
//
// The tests need root and an OCI runtime that works here; elsewhere they skip
// and say why. TOOLD_TEST_REQUIRE=oci turns that skip into a failure.
package attack
