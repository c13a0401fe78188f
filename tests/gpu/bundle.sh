#!/bin/bash
# Puts what a machine with a GPU and without a network may lack into .gpu-bundle in the root of the
# repository: bash tests/gpu/bundle.sh [FOLDER]
# Debian's own packages, unpacked: headers, static libraries, and a pkg-config that finds them;
# meson and ninja of PyPI; this machine's nccl.h, which the machine's own NCCL may come without.
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
find unpacked/usr/lib -name 'liburing.a' -exec cp {} "$bundle/lib" \;
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

# describe NAME PACKAGE [FLAGS [LIBRARIES]]: where the bundle lies is not known before it is used.
describe() {
  local version
  version=$(dpkg-deb -f "$work/$2"_*.deb Version | sed 's/^[0-9]*://; s/[-+~].*//')
  cat >"$bundle/pkgconfig/$1.pc" <<DESCRIPTION
bundle=\${pcfiledir}/..
Name: $1
Description: Debian's $2
Version: $version
Cflags: -I\${bundle}/include ${3:-}
Libs: ${4:-}
DESCRIPTION
}
describe liburing liburing-dev '' '-L${bundle}/lib -luring'
# Debian has no static one.
describe fmt libfmt-dev -DFMT_HEADER_ONLY
describe doctest doctest-dev
describe CLI11 libcli11-dev
describe nlohmann_json nlohmann-json3-dev

# A library that is named and not there would be the building machine's where that has one, and
# none where it does not.
for description in "$bundle"/pkgconfig/*.pc; do
  for library in $(sed -n 's/^Libs://p' "$description" | grep -o -- '-l[^ ]*' || true); do
    [ -e "$bundle/lib/lib${library#-l}.a" ] ||
      { echo "$(basename "$description") names $library, which the bundle lacks" >&2; exit 1; }
  done
done

mkdir "$bundle/python"
python3 -m pip download -q --no-deps --only-binary=:all: -d wheels meson ninja >/dev/null ||
  { echo "meson and ninja cannot be had from PyPI" >&2; exit 1; }
for wheel in wheels/*.whl; do python3 -m zipfile -e "$wheel" "$bundle/python"; done
find "$bundle/python" -path '*bin/ninja' -o -path '*scripts/ninja' | head -n 1 |
  xargs -I{} install -m 755 {} "$bundle/bin/ninja"
cat >"$bundle/bin/meson" <<'MESON'
#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
PYTHONPATH="$here/../python" exec python3 -m mesonbuild.mesonmain "$@"
MESON
chmod +x "$bundle/bin/meson"

header=$(echo '#include <nccl.h>' | g++ -M -I/usr/local/cuda/include -x c++ - 2>/dev/null |
  tr ' ' '\n' | grep -m 1 '/nccl\.h$' || true)
if [ -n "$header" ]; then
  mkdir -p "$bundle/nccl/include"
  cp "$header" "$bundle/nccl/include"
else
  echo "no nccl.h here: the machine with the GPU needs one" >&2
fi

size=$(du -sm "$bundle" | cut -f1)
echo "$bundle: $size MiB"
[ "$size" -lt 30 ] || { echo "too large to travel" >&2; exit 1; }
