#!/bin/bash
# Builds and runs what needs a GPU: bash tests/gpu/run.sh [--emulated] [--quick] [--build FOLDER]
#   [--part N] [--no-build] [--seconds N] [--find]
#   --emulated  on the emulated libraries, with fewer repetitions: figures say nothing about speed
#   --quick     fewer still, and of the tests only those of ranks that share a GPU
#   --part      1: whether anything runs; 2: all other tests; 3: benchmarks (default: all of it)
#   --build     where (default: build-gpu, or build-gpu-emulated)
#   --no-build  what is there already: needs the libraries alone, neither headers nor tools
#   --seconds   for all of it (default: 475); parts for which none are left count as failed
#   --find      only says which libraries and headers are taken (CUDA_HOME and NCCL_HOME come first)
# Results go to $OUT, or ./gpu-results. Ends well if everything passed. See README.md beside it.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
began=$SECONDS
emulated=no
quick=no
build=
builds=yes
only_finds=no
part=
seconds=475

say() { printf '[%3d s] %s\n' "$((SECONDS - began))" "$*"; }
die() { printf '%s\n' "$*" >&2; exit 1; }

while [ $# -gt 0 ]; do
  case $1 in
    --emulated) emulated=yes ;;
    --quick) quick=yes ;;
    --build) build=$2; shift ;;
    --part) part=$2; shift ;;
    --no-build) builds=no ;;
    --find) only_finds=yes ;;
    --seconds) seconds=$2; shift ;;
    *) die "unknown argument: $1 (--emulated, --quick, --part, --build, --no-build, --seconds, --find)" ;;
  esac
  shift
done
results=${OUT:-$PWD/gpu-results}
mkdir -p "$results"

# library_of FOLDER NAME: the folder under it that has the library.
library_of() {
  local folder
  for folder in "$1"/{lib64,lib,targets/x86_64-linux/lib,lib/x86_64-linux-gnu}; do
    [ -e "$folder/$2" ] && { echo "$folder"; return; }
  done
  return 1
}

# first_with LIBRARY HEADER FOLDER...: the first of the folders that has both; without the header
# where it is empty.
first_with() {
  local library=$1 header=$2 folder
  shift 2
  for folder in "$@"; do
    [ -z "$header" ] || [ -e "$folder/include/$header" ] || continue
    library_of "$folder" "$library" >/dev/null && { echo "$folder"; return; }
  done
  return 1
}

wheels() { python3 -c 'import nvidia; print("\n".join(nvidia.__path__))' 2>/dev/null; }

# Roots of CUDA and NCCL: as the environment says, nvcc's own, the usual places, then the wheels'.
find_libraries() {
  local compiler candidates=() wheel header=
  [ "$builds" = no ] || header=cuda_runtime_api.h
  [ -z "${CUDA_HOME:-}" ] || candidates+=("$CUDA_HOME")
  compiler=$(command -v nvcc) && candidates+=("$(dirname "$(dirname "$(readlink -f "$compiler")")")")
  candidates+=(/usr/local/cuda /usr/local/cuda-13.0)
  while read -r wheel; do
    candidates+=("$wheel/cu13" "$wheel/cuda_runtime")
  done < <(wheels)
  cuda_root=$(first_with libcudart.so.13 "$header" "${candidates[@]}") ||
    die "no libcudart.so.13${header:+ with $header} in: ${candidates[*]}"
  candidates=()
  [ -z "${NCCL_HOME:-}" ] || candidates+=("$NCCL_HOME")
  while read -r wheel; do candidates+=("$wheel/nccl"); done < <(wheels)
  candidates+=("$cuda_root" /usr/local /usr)
  nccl_root=$(first_with libnccl.so.2 '' "${candidates[@]}") ||
    die "no libnccl.so.2 in: ${candidates[*]}"
  libraries=$(library_of "$cuda_root" libcudart.so.13):$(library_of "$nccl_root" libnccl.so.2)
  say "CUDA in $cuda_root, NCCL in $nccl_root"
}

# The header may be elsewhere than the library, as a wheel may have the library alone: then a root
# of both is made.
find_nccl_header() {
  local folder
  [ -e "$nccl_root/include/nccl.h" ] && return
  for folder in "$root/.gpu-bundle/nccl" "$cuda_root" /usr/local /usr; do
    [ -e "$folder/include/nccl.h" ] || continue
    say "nccl.h of $folder"
    mkdir -p "$results/nccl/include"
    ln -sfn "$(library_of "$nccl_root" libnccl.so.2)" "$results/nccl/lib"
    ln -sf "$folder/include/nccl.h" "$results/nccl/include/nccl.h"
    nccl_root=$results/nccl
    return
  done
  die "no nccl.h: see tests/gpu/bundle.sh"
}

# Also those that came with Python's packages, or in the bundle.
find_tools() {
  local tool
  PATH=$PATH:$(python3 -c 'import os, sys; print(os.path.dirname(sys.executable))') ||
    die "no python3"
  [ ! -d "$root/.gpu-bundle/bin" ] || PATH=$PATH:$root/.gpu-bundle/bin
  for tool in g++ meson ninja; do
    command -v "$tool" >/dev/null || die "no $tool"
  done
}

# What the bundle has need not be on the machine.
use_bundle() {
  local bundle=$root/.gpu-bundle
  if [ -d "$bundle" ]; then
    export PKG_CONFIG=$bundle/bin/pkg-config
  elif ! pkg-config --exists fmt doctest nlohmann_json CLI11 2>/dev/null; then
    die "neither fmt, doctest, nlohmann-json and CLI11 here nor .gpu-bundle: see tests/gpu/bundle.sh"
  fi
}

targets=(
  benchmarks/device/mwdevice
  tests/conformance/conformance_cuda_test
  tests/conformance/conformance_nccl_test
  tests/nccl/gpu_worlds_test
  tests/nccl_test
)

build_all() {
  local options=(-Dtests=enabled -Dbenchmarks=enabled -Dexamples=disabled -Dtools=disabled
    -Dnccl=enabled)
  if [ "$emulated" = yes ]; then
    options+=(-Demulation=enabled -Doptimization=1 -Ddebug=true)
    targets+=(tests/emulation/libcudart.so.13 tests/emulation/libnccl.so.2)
  else
    # On many cores the library is built soonest file by file.
    options+=(-Demulation=disabled -Dsecret=disabled -Doptimization=2 -Ddebug=false
      -Done_file=false -Dnccl_cuda_root="$cuda_root" -Dnccl_root="$nccl_root")
  fi
  [ -f "$build/build.ninja" ] && options+=(--reconfigure)
  meson setup "${options[@]}" "$build" "$root" && ninja -C "$build" "${targets[@]}"
}

if [ "$emulated" = yes ]; then
  build=$(realpath -m "${build:-$root/build-gpu-emulated}")
  suite=(--emulated)
  libraries=$build/tests/emulation
else
  build=$(realpath -m "${build:-$root/build-gpu}")
  suite=()
  find_libraries
  [ "$builds" = no ] || find_nccl_header
  [ "$only_finds" = no ] || exit 0
  [ "$builds" = no ] || use_bundle
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null ||
    say "nvidia-smi tells nothing"
fi
[ "$quick" = yes ] && suite+=(--quick)
[ -z "$part" ] || suite+=(--part "$part")
# What was packed brings what its programs need.
[ ! -d "$root/lib" ] || libraries+=:$root/lib

if [ "$builds" = yes ]; then
  find_tools
  say "building in $build"
  build_all >"$results/build.log" 2>&1 || { tail -n 40 "$results/build.log"; die "it does not build"; }
fi
# Many communicators come near the usual 1,024.
ulimit -n "$(ulimit -Hn)" 2>/dev/null || say "at most $(ulimit -n) descriptors"
say "running"
# It keeps to its limit by itself; the other one is for the case that it cannot.
left=$((seconds - (SECONDS - began) - 5))
timeout --foreground -k 2 "$((left + 3))" python3 "$root/tests/gpu/suite.py" --build "$build" \
  --results "$results" --libraries "$libraries" --seconds "$left" "${suite[@]}"
