package shell

// Bypasses is for the tests with the rules, which import this package's users.
var Bypasses = bypasses
