#!/bin/bash
# Every set of options that a reader of src/USING.md may choose can be configured: configures.sh FOLDER MESON...
set -u
folder=$1
shift
root=$(cd "$(dirname "$0")/../.." && pwd)
status=0
# The demo's (examples/quickstart.sh), and each optional part left out.
for options in '-Dtests=disabled --buildtype=release -Done_file=false' '-Dtests=enabled -Dnccl=disabled' \
  '-Dtests=enabled -Demulation=disabled' '-Dtests=enabled -Dbenchmarks=disabled -Dexamples=disabled' \
  '-Dlibrary_only=true'; do
  rm -rf "$folder"
  # shellcheck disable=SC2086
  if ! timeout 60 "$@" setup "$folder" "$root" $options >"$folder.log" 2>&1; then
    echo "meson setup $options:"
    grep -m1 -A2 ERROR "$folder.log" || tail -3 "$folder.log"
    status=1
  fi
done
rm -rf "$folder"
exit $status
