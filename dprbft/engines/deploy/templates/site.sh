#!/usr/bin/env bash
# Starts site $site: its node, which holds the data, and its connection out to $address.
# Ctrl-C ends both. PANAS names the command where it is not on PATH.
set -euo pipefail
cd "$$(dirname "$$0")"
umask 077
exec "$${PANAS:-panas}" deploy start --site .
