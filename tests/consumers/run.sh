#!/bin/bash
# Puts the library into a project and runs what it builds: run.sh CONSUMER BUILD OUTPUT
# CONSUMER is pkgconfig, cmake, meson or source; BUILD a configured build folder of the library.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
consumer=$1 build=$2 output=$3

rm -rf "$output"
mkdir -p "$output"

install_library() {
  meson install -C "$build" --no-rebuild --quiet --destdir "$output/installed"
  prefix=$output/installed$(meson introspect "$build" --buildoptions |
    python3 -c 'import json, sys
print(next(o["value"] for o in json.load(sys.stdin) if o["name"] == "prefix"))')
  pkgconfig=$(dirname "$(find "$prefix" -name manyworlds.pc)")
}

case $consumer in
  pkgconfig)
    install_library
    export PKG_CONFIG_PATH=$pkgconfig PKG_CONFIG_SYSROOT_DIR=$output/installed
    # What only our own sources include, or open at run time, is asked of no program.
    if grep -iE 'pmix|nlohmann|curl|cudart' "$pkgconfig"/manyworlds*.pc; then
      echo "a program would need that, and does not use it" >&2
      exit 1
    fi
    make -C "$here/pkgconfig" OUTPUT="$output"
    "$output/simulated"
    program=$output/consumer
    ;;
  cmake)
    install_library
    cmake -S "$here/cmake" -B "$output/build" -DCMAKE_PREFIX_PATH="$prefix"
    cmake --build "$output/build"
    "$output/build/simulated"
    program=$output/build/consumer
    ;;
  meson)
    # A shared library here, so that what the other two cannot see is linked as well.
    mkdir -p "$output/project/subprojects"
    cp "$here/program.cpp" "$output"
    cp "$here/meson/meson.build" "$output/project"
    ln -s "$root" "$output/project/subprojects/manyworlds"
    # The library's own default is static: the option is said for the subproject. As one file,
    # which is for optimized builds, but without what the optimizer would take.
    meson setup "$output/build" "$output/project" --buildtype=release -Dcpp_args=-O0 \
      -Dmanyworlds:default_library=shared
    meson compile -C "$output/build"
    program=$output/build/consumer
    # Not grep -q: it ends at the first match, and who still writes to it fails then.
    if ! readelf --dynamic "$program" | grep 'NEEDED.*libmanyworlds\.so' >/dev/null ||
      ! ldd "$program" | grep "libmanyworlds\.so.* => $output/build/" >/dev/null; then
      echo "the consumer does not use the shared library:" >&2
      ldd "$program" >&2
      exit 1
    fi
    ;;
  source)
    # Headers alone, in two translation units, without a warning, by both compilers. g++ only reads
    # them: as one file the library is compiled and run by g++ in `vendored`.
    install_library
    units=("$here/program.cpp" "$here/source/implementation.cpp")
    flags=(-std=c++20 -foptimize-sibling-calls -I"$prefix/include" -DMANYWORLDS_HAS_NCCL=0
      -Wall -Wextra -Wconversion -Wshadow -pedantic -Werror)
    program=$output/consumer
    clang++ "${flags[@]}" "${units[@]}" -luring -lcrypto -lcares -o "$program"
    for unit in "${units[@]}"; do
      g++ "${flags[@]}" -fsyntax-only "$unit"
    done
    ;;
  *)
    echo "unknown consumer: $consumer" >&2
    exit 2
    ;;
esac

bash "$here/runs_right.sh" "$program"
