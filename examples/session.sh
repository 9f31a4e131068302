#!/bin/bash
# A session with nothing but curl and jq: create, call, stream, end.
#	examples/session.sh /path/to/worktree 'command'
set -euo pipefail
socket=${TOOLD_SOCKET:-/run/toold/toold.sock}
api() { curl -sS --fail-with-body --unix-socket "$socket" -H 'Content-Type: application/json' "$@"; }

id=$(jq -nc --arg dir "$(realpath "$1")" '{worktree: {source: $dir}}' | api -d @- http://toold/v1/sessions | jq -r .id)
# The end names the files that git, an editor or CI would run on sight: look at them
# before any of these works in the directory.
trap 'api -X DELETE "http://toold/v1/sessions/$id" | jq ".worktree.sensitive // empty"' EXIT

# The answer comes when the command has ended …
jq -nc --arg c "$2" '{tool: "bash", input: {command: $c}}' |
	api -d @- "http://toold/v1/sessions/$id/calls" | jq '{output, exit: .metadata.exit_code, reason: .metadata.reason}'

# … or as events, while it runs.
jq -nc --arg c "$2" '{tool: "bash", input: {command: $c}}' |
	api -N -H 'Accept: text/event-stream' -d @- "http://toold/v1/sessions/$id/calls"
