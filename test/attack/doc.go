// Package attack holds the attack tests: what a hostile session, a hostile local
// user or an unlucky moment does to a real daemon with real containers, and what
// must be seen. Every test runs beside a neighbour session of another tenant,
// has a negative control that shows that the attack works where the defence is
// missing, and ends with the same invariants (see invariants_test.go).
//
// TOOLD_TEST_TIER says what holds the sessions (see tiers in tier_test.go): runc
// unless it says otherwise. What a row finds otherwise on a tier than on the
// first is written down in differences, with the reason; the table of rows and
// tiers in docs/security.md is made of both.
//
// The tests need root and what the tier needs; elsewhere they skip and say why.
// TOOLD_TEST_REQUIRE=oci,runsc,docker turns those skips into failures.
package attack
