// Package prometheus tests what toold tells Prometheus, with the real one: it
// scrapes a daemon under load, and every panel of the dashboard and every alert
// must find in it what it asks for. promtool looks at the rest.
//
// The tests need root, an OCI runtime, and Debian's prometheus and promtool in
// bin/ (scripts/install-prometheus) or in PATH. They are skipped elsewhere with the
// reason; TOOLD_TEST_REQUIRE=prometheus makes a failure of that.
package prometheus
