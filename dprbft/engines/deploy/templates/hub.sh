#!/usr/bin/env bash
# Starts the hub at port $port, and lets in the sites of hub.toml. Ctrl-C ends it.
# PANAS names the command where it is not on PATH.
set -euo pipefail
cd "$$(dirname "$$0")"
umask 077
exec "$${PANAS:-panas}" deploy start --hub .
