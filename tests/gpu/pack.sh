#!/bin/bash
# Packs the programs of a build for a machine that has a GPU's driver, CUDA's and NCCL's libraries,
# bash and python3, and nothing else: bash tests/gpu/pack.sh [--emulated] BUILD FOLDER
#   --emulated  with the emulated libraries, for `run.sh PART --emulated` in the folder
# The programs of an ordinary build will do: what they need beyond libc comes along.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
emulated=no
[ "${1:-}" != --emulated ] || { emulated=yes; shift; }
[ $# -eq 2 ] || { echo "usage: pack.sh [--emulated] BUILD FOLDER" >&2; exit 2; }
build=$(realpath "$1")
folder=$(realpath -m "$2")
programs=(
  benchmarks/device/mwdevice
  tests/conformance/conformance_cuda_test
  tests/conformance/conformance_nccl_test
  tests/nccl/gpu_worlds_test
  tests/nccl_test
)

rm -rf "$folder"
mkdir -p "$folder"/{build,lib,tests/gpu}
for program in "${programs[@]}"; do
  [ -x "$build/$program" ] || { echo "$build has no $program" >&2; exit 1; }
  mkdir -p "$folder/build/$(dirname "$program")"
  strip -o "$folder/build/$program" "$build/$program"
done
# Not CUDA's and NCCL's, which are the machine's own, nor what must be of its kernel and loader.
for program in "${programs[@]}"; do
  LD_LIBRARY_PATH="$build/tests/emulation" ldd "$build/$program"
done | awk '$2 == "=>" && $3 ~ "^/" { print $3 }' | sort -u |
  grep -vE '/(libc|libm|libdl|librt|libpthread|libcudart|libnccl)\.so' |
  xargs -I{} cp -L {} "$folder/lib"
if [ "$emulated" = yes ]; then
  mkdir -p "$folder/build/tests/emulation"
  cp -L "$build"/tests/emulation/lib{cudart.so.13,nccl.so.2} "$folder/build/tests/emulation"
fi
cp "$here"/{run.sh,suite.py,cases.py,facts.py,page.py,processes.py} "$folder/tests/gpu"
cat >"$folder/run.sh" <<'RUN'
#!/bin/bash
# bash run.sh PART: 1 tells whether anything runs, 2 runs all other tests, 3 measures. Results go to
# $OUT, or ./gpu-results.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
part=${1:?"which part: 1, 2 or 3"}
shift
exec bash "$here/tests/gpu/run.sh" --no-build --build "$here/build" --part "$part" "$@"
RUN

size=$(du -sm "$folder" | cut -f1)
echo "$folder: $size MiB"
[ "$size" -lt 40 ] || { echo "too large to travel" >&2; exit 1; }
