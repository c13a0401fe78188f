#!/bin/bash
# What is packed runs in a root that has bash, python3 and a few small tools, and neither compilers
# nor packages: pack_test.sh BUILD FOLDER. Every part, on the emulation, within its limits; in the
# first of them a case is made to hang. Skipped where no root can be entered.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$1
folder=$2
rm -rf "$folder"
mkdir -p "$folder/results"
root=$folder/root

skip() { echo "skipped: $*"; exit 77; }

# Namespaces of its own, as root, or as a user that may be root in a namespace of users.
apart=(unshare --mount --pid --fork)
if ! "${apart[@]}" true 2>/dev/null; then
  apart=(unshare --user --map-root-user --mount --pid --fork)
  "${apart[@]}" true 2>/dev/null || skip "no namespace of mounts may be made here"
fi
python=/usr/bin/python3
[ -x "$python" ] || skip "there is no $python"

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
modules=$("$python" -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
take "$python"
mkdir -p "$root$modules"
cp -r "$modules/." "$root$modules"
# Python's own alone: what is installed beside them the machine does not have.
rm -rf "$root$modules"/{site,dist}-packages "$root$modules/ensurepip"
for module in "$modules"/lib-dynload/*.so; do take "$module"; done
mkdir -p "$root"/{proc,dev,tmp,results,etc}
echo '127.0.0.1 localhost' >"$root/etc/hosts"

bash "$here/pack.sh" --emulated "$build" "$root/pack"
size=$(du -sm "$root/pack" | cut -f1)
[ "$size" -lt 40 ] || { echo "the folder has $size MiB: more than may travel"; exit 1; }

inside() {
  "${apart[@]}" bash -c '
    mount --rbind /dev "$0/dev" && mount --bind "$1" "$0/results" && mount -t proc proc "$0/proc" &&
      exec chroot "$0" "${@:2}"' "$root" "$folder/results" "$@"
}
why=$(inside /usr/bin/env bash -c true 2>&1) || skip "no other root may be entered here: $why"
for tool in g++ gcc cc c++ clang ld as make ninja meson cmake pkg-config apt-get dpkg pip pip3; do
  ! inside /usr/bin/env bash -c 'command -v "$0"' "$tool" ||
    { echo "the root has $tool, which it should lack"; exit 1; }
done
! inside /usr/bin/env python3 -c 'import pip' 2>/dev/null ||
  { echo "the root has Python packages, which it should lack"; exit 1; }

# The third case of the last program of part 1 stands still once it has begun, with all its processes.
planted=$root/pack/build/tests/nccl_test
hung=$(LD_LIBRARY_PATH="$build/tests/emulation" "$build/tests/nccl_test" --list-test-cases | sed -n 5p)
mv "$planted" "$planted.real"
cat >"$planted" <<'PLANTED'
#!/usr/bin/env bash
[[ " $* " == *" --first=3 "* ]] || exec "$0.real" "$@"
"$0.real" "$@" | while IFS= read -r line; do
  printf '%s\n' "$line"
  [[ $line != *'<TestCase name='* || $line == *'skipped="true"'* ]] || kill -STOP 0
done
PLANTED
chmod +x "$planted"

for part in 1 2 3; do
  began=$SECONDS
  status=0
  inside /usr/bin/env -i PATH=/usr/bin:/bin HOME=/tmp OUT="/results/$part" \
    bash /pack/run.sh "$part" --emulated --quick || status=$?
  took=$((SECONDS - began))
  [ -s "$folder/results/$part/suite.json" ] || { echo "part $part left no results"; exit 1; }
  if [ "$part" = 1 ]; then
    [ "$status" = 1 ] || { echo "part 1 ended with $status, with a case that hung"; exit 1; }
    "$python" "$here/pack_check.py" "$folder/results/$part" "$took" "$hung"
  else
    [ "$status" = 0 ] || { echo "part $part ended with $status"; exit 1; }
    "$python" "$here/pack_check.py" "$folder/results/$part" "$took"
  fi
done
"$python" "$here/merge.py" --into "$folder/merged" "$folder"/results/*
grep -q 'conformance cuda' "$folder/merged/README.md"
sed '/^## Parts/q' "$folder/merged/README.md" | grep -q '| Emulated GPU |' ||
  { echo "the machine is not at the head of what is kept"; exit 1; }
