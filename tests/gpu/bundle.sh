#!/bin/bash
# Puts what a machine with a GPU and without a network may lack into .gpu-bundle in the root of the
# repository: bash tests/gpu/bundle.sh [FOLDER]
# Debian's own packages, unpacked: headers, static libraries, and a pkg-config that finds them.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bundle=$(realpath -m "${1:-$root/.gpu-bundle}")
packages=(liburing-dev libfmt-dev doctest-dev libcli11-dev nlohmann-json3-dev pkgconf-bin libpkgconf3)

[ "$(uname -m)" = x86_64 ] || { echo "the machine with the GPU is x86-64, this one is not" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get download -q "${packages[@]}" >/dev/null
for package in *.deb; do dpkg -x "$package" unpacked; done

rm -rf "$bundle"
mkdir -p "$bundle"/{bin,include,lib,pkgconfig}
cp -r unpacked/usr/include/{liburing,liburing.h,fmt,doctest,CLI,nlohmann} "$bundle/include"
find unpacked/usr/lib -name 'liburing.a' -o -name 'libfmt.a' | xargs -I{} cp {} "$bundle/lib"
cp -L unpacked/usr/lib/*/libpkgconf.so.* "$bundle/bin"
cp unpacked/usr/bin/pkgconf "$bundle/bin"
cat >"$bundle/bin/pkg-config" <<'PKGCONFIG'
#!/bin/sh
# Finds this bundle and nothing of the machine's.
here=$(cd "$(dirname "$0")" && pwd)
export PKG_CONFIG_LIBDIR="$here/../pkgconfig" PKG_CONFIG_PATH= LD_LIBRARY_PATH="$here"
exec "$here/pkgconf" "$@"
PKGCONFIG
chmod +x "$bundle/bin/pkg-config"

# describe NAME PACKAGE LIBRARIES: where the bundle lies is not known before it is used.
describe() {
  local version
  version=$(dpkg-deb -f "$work/$2"_*.deb Version | sed 's/^[0-9]*://; s/[-+~].*//')
  cat >"$bundle/pkgconfig/$1.pc" <<DESCRIPTION
bundle=\${pcfiledir}/..
Name: $1
Description: Debian's $2
Version: $version
Cflags: -I\${bundle}/include
Libs: $3
DESCRIPTION
}
describe liburing liburing-dev '-L${bundle}/lib -luring'
describe fmt libfmt-dev '-L${bundle}/lib -lfmt'
describe doctest doctest-dev ''
describe CLI11 libcli11-dev ''
describe nlohmann_json nlohmann-json3-dev ''

size=$(du -sm "$bundle" | cut -f1)
echo "$bundle: $size MiB"
[ "$size" -lt 30 ] || { echo "too large to travel" >&2; exit 1; }
