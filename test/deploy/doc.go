// Package deploy tests deploy/docker: that compose.yaml means what is there, that
// the Dockerfile builds, and that toold works in the container that they make, with
// a real Docker Engine. It has tests only.
//
// The Engine is a private one (scripts/engine) without any network, so the images
// that the files name are made here: those of toold and of Prometheus, from the
// programs of bin/ and the small tool image (make image VARIANT=small). Grafana's
// is not run; what it is given is checked. What is built from source in the
// Dockerfile is built by the same make targets as everywhere and not once more here.
//
// The tests need root and an Engine, and are skipped elsewhere with the reason;
// TOOLD_TEST_REQUIRE=docker makes a failure of that.
package deploy
