package client

// Release is the version of toold that this is, as in the newest heading of CHANGELOG.md. A build may
// add to it which commit it is of, behind a +.
const Release = "0.1.0"
