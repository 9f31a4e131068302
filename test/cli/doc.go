// Package cli tests toolctl and toold together, as their users run them: the
// scripts in testdata start real daemons and make real sandboxes. Each begins
// with the reason why it exists.
//
// They need root and an OCI runtime, and are skipped elsewhere with the reason;
// TOOLD_TEST_REQUIRE=oci makes a failure of that. A daemon of a script has its
// own socket, directories, cgroups and user ids, and ends with the script, also
// when the test is killed.
//
// Besides testscript's own commands there are:
//
//	daemon [flags]         start toold and wait until it is ready
//	reloaddaemon           have it read its configuration again
//	killdaemon             kill it as a crash would; daemon starts it again
//	exits CODE COMMAND…    run a command that must exit with CODE
//	eventually COMMAND…    run a command until it succeeds
//	setvar NAME            keep the last standard output in a variable
//	terminal [80x24] [TEXT=>KEYS]… PROGRAM…
//	                       run one of ours on a terminal, of this size, and press
//	                       keys when texts are shown; its standard output is what
//	                       that shows
//	narrow COLUMNS         no line of the last standard output is wider
//	privatedir DIR         toolctl and toold in DIR, for `run` without a daemon
//	block FILE NAME        write the command block of a document to NAME.sh
//
// The documents' command blocks are run as they stand there: a comment above each
// names the script that does, and what the script calls it, or says why none does.
// TestCommandBlocks in the root of the repository holds both to that.
package cli
