# Sourced by tests/run.sh and examples/quickstart.sh: what the machine needs, and the build folder
# that both share.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build

say() { printf '== %s\n' "$*"; }
die() { printf '%s\n' "$*" >&2; exit 1; }

is_installed() {
  dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed'
}

supported_distribution() (
  [ -r /etc/os-release ] && . /etc/os-release && command -v dpkg-query >/dev/null || return 1
  case "$ID $VERSION_ID" in
    'debian 12' | 'debian 13' | 'ubuntu 24.04') return 0 ;;
    *) return 1 ;;
  esac
)

# On a distribution that we do not know how to install on: every tool and header by name.
missing_by_name() {
  local tool header
  for tool in g++ meson ninja pkg-config cmake make python3; do
    command -v "$tool" >/dev/null || echo "  the program $tool"
  done
  for header in liburing.h fmt/format.h doctest/doctest.h openssl/hmac.h ares.h \
    curl/curl.h nlohmann/json.hpp CLI/CLI.hpp asio.hpp toml++/toml.h sqlite3.h; do
    echo "#include <$header>" | g++ -std=c++20 -E -x c++ - >/dev/null 2>&1 ||
      echo "  the header <$header>"
  done
}

require_packages() {
  local missing=() package as_root=()
  if ! supported_distribution; then
    missing=$(missing_by_name)
    [ -z "$missing" ] && return
    die "This is neither Debian 12 or 13 nor Ubuntu 24.04. Please install, then run this again:
$missing"
  fi
  for package in "$@"; do
    is_installed "$package" || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return

  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      die "Neither root nor sudo: please have these installed: ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing with apt-get: ${missing[*]}"
  "${as_root[@]}" apt-get update -q >/dev/null || say "apt-get update failed; trying to install anyway"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null ||
    die "could not install: ${missing[*]}"
}

build_packages=(
  g++ meson ninja-build pkg-config cmake make python3
  liburing-dev libfmt-dev libssl-dev libc-ares-dev libcurl4-openssl-dev nlohmann-json3-dev
  libcli11-dev libpmix-dev libmicrohttpd-dev libtomlplusplus-dev libsqlite3-dev
)
test_packages=(doctest-dev iproute2 libasio-dev libcpp-httplib-dev etcd-server openssl
  openmpi-bin mpich)

# configure FOLDER [MESON OPTION...]: sets it up once, then only changes what differs.
configure() {
  local folder=$1 log
  shift
  mkdir -p "$folder"
  log=$folder/configure.log
  if [ -f "$folder/build.ninja" ]; then
    [ $# -eq 0 ] && return
    meson setup --reconfigure "$@" "$folder" "$root" >"$log" 2>&1
  else
    meson setup "$@" "$folder" "$root" >"$log" 2>&1
  fi || { cat "$log" >&2; return 1; }
}
