#!/bin/bash
# Builds and runs the demo: bash examples/quickstart.sh [ARGUMENTS OF THE DEMO]
# Installs what the build needs first (Debian 12 or 13, Ubuntu 24.04; as root or with sudo).
set -euo pipefail
. "$(dirname "$0")/../tests/setup.sh"

# Standard output belongs to the demo, so that --json can be piped.
{
  require_packages "${build_packages[@]}"
  [ -f "$build/build.ninja" ] || configure "$build" --buildtype=release -Done_file=false -Dtests=disabled
  say "building build/examples/quickstart"
  ninja -C "$build" examples/quickstart
} >&2

exec "$build/examples/quickstart" "$@"
