#!/bin/bash
# What a bundle's pkg-config names is the bundle's, and a program made of it asks for no library of
# the machine's: bundle_test.sh FOLDER. Skipped without a network.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$1
rm -rf "$folder"
mkdir -p "$folder"
if ! curl -sfo "$folder/index" --max-time 20 https://pypi.org/simple/meson/ ||
  ! (cd "$folder" && timeout 60 apt-get download -q liburing-dev >/dev/null 2>&1); then
  echo "skipped: the packages of Debian and PyPI cannot be fetched here"
  exit 77
fi
bash "$here/bundle.sh" "$folder/bundle"

cat >"$folder/uses.cpp" <<'SOURCE'
#include <fmt/format.h>
#include <liburing.h>

int main() {
  io_uring ring;
  const std::string said = fmt::format("{}", io_uring_queue_init(1, &ring, 0));
  return said.empty();
}
SOURCE
flags=$("$folder/bundle/bin/pkg-config" --cflags --libs fmt liburing)
# shellcheck disable=SC2086
g++ -std=c++20 "$folder/uses.cpp" -o "$folder/uses" $flags
"$folder/uses"
needed=$(readelf -d "$folder/uses" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p')
for library in $needed; do
  case $library in
    libstdc++.so.* | libgcc_s.so.* | libm.so.* | libc.so.*) ;;
    *) echo "it needs $library, which a bare machine may lack"; exit 1 ;;
  esac
done
"$folder/bundle/bin/meson" --version
"$folder/bundle/bin/ninja" --version
