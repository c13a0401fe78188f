#!/bin/bash
# What is packed runs in a root that has bash, python3 and a few small tools, and neither compilers
# nor packages: pack_test.sh BUILD FOLDER. Every part, on the emulation. Skipped where no root can be
# entered.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$1
folder=$2
rm -rf "$folder"
mkdir -p "$folder/results"
root=$folder/root

if ! unshare --mount --pid --fork true 2>/dev/null || [ ! -x /usr/bin/python3 ]; then
  echo "skipped: no mounts can be made here, or there is no /usr/bin/python3"
  exit 77
fi

# take FILE...: into the root, with the libraries that it asks for.
take() {
  local file needed
  for file in "$@"; do
    mkdir -p "$root$(dirname "$file")"
    cp -L "$file" "$root$file"
    for needed in $(ldd "$file" 2>/dev/null | grep -o '/[^ ]*' || true); do
      [ -e "$root$needed" ] && continue
      mkdir -p "$root$(dirname "$needed")"
      cp -L "$needed" "$root$needed"
    done
  done
}

for tool in bash sh env timeout mkdir dirname realpath readlink id cat; do
  take "$(command -v "$tool")"
done
python=/usr/bin/python3
modules=$("$python" -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
take "$python"
mkdir -p "$root$modules"
cp -r "$modules/." "$root$modules"
for module in "$modules"/lib-dynload/*.so; do take "$module"; done
mkdir -p "$root"/{proc,dev,tmp,results,etc}
echo '127.0.0.1 localhost' >"$root/etc/hosts"

bash "$here/pack.sh" --emulated "$build" "$root/pack"

inside() {
  unshare --mount --pid --fork bash -c '
    mount --rbind /dev "$0/dev" && mount --bind "$1" "$0/results" && mount -t proc proc "$0/proc" &&
      exec chroot "$0" "${@:2}"' "$root" "$folder/results" "$@"
}
if ! inside /usr/bin/env bash -c true; then
  echo "skipped: no other root can be entered here"
  exit 77
fi
if inside /usr/bin/env bash -c 'command -v g++ || command -v cc || command -v meson || command -v apt-get'; then
  echo "the root has what it should lack"
  exit 1
fi
for part in 1 2 3; do
  began=$SECONDS
  inside /usr/bin/env -i PATH=/usr/bin:/bin HOME=/tmp OUT="/results/$part" \
    bash /pack/run.sh "$part" --emulated --quick --seconds 240
  echo "part $part took $((SECONDS - began)) s"
  [ -s "$folder/results/$part/suite.json" ] || { echo "part $part left no results"; exit 1; }
done
"$python" "$here/merge.py" --into "$folder/merged" "$folder"/results/*
grep -q 'conformance cuda' "$folder/merged/README.md"
