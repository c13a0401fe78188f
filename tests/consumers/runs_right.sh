#!/bin/bash
# Runs a consumer and compares what it says: runs_right.sh PROGRAM
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
version=$(sed -n "s/^  version: '\([0-9.]*\)',$/\1/p" "$here/../../meson.build")

diff - <(timeout 60 "$1" || echo "it exited with $?") <<EXPECTED
manyworlds $version
left: rank 1 received 1 2 3, rank 0 the sum 6
right: rank 1 received 1 2 3 4, rank 0 the sum 10
EXPECTED
