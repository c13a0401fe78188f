#!/bin/bash
# Every question on this machine, beside the peers where they have an answer:
#   reproduce.sh [--quick] [--only NAME,...] [MWBENCH] [FOLDER]
#   reproduce.sh --build-only
#
# Takes the program MWBENCH, or else builds the project's own, optimized, in build-bench, and installs what that needs
# (as tests/run.sh does). Writes JSON, Markdown and SVG for each question into FOLDER, by default results/DATE-MACHINE
# beside this file. Peers that are missing are named there and left out: peers/install.sh has them. All of it takes
# 70 to 80 minutes, --quick 6 (figures of one round: only to see that all works). --only asks what is in these files
# alone, as "store,launch". --build-only says which program it is.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

build_mwbench() {
  # shellcheck source=../tests/setup.sh
  . "$here/../tests/setup.sh"
  local folder=${MANYWORLDS_BENCH_BUILD:-$root/build-bench}
  require_packages "${build_packages[@]}"
  say "building mwbench, in $folder" >&2
  configure "$folder" --buildtype=release -Dlibrary_only=false -Dbenchmarks=enabled \
    -Dtests=disabled -Dexamples=disabled >&2
  local targets=(benchmarks/mwbench benchmarks/mwbench-first) graphs=(benchmarks/mwbench-graph src/tools/mwgraph)
  if ninja -C "$folder" -n "${graphs[@]}" >/dev/null 2>&1; then targets+=("${graphs[@]}"); fi
  ninja -C "$folder" "${targets[@]}" >&2
  mwbench=$folder/benchmarks/mwbench
}

quick=no only='' only_build=no mwbench=''
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=yes ;;
    --only) only=${2:?--only names what is asked}; shift ;;
    --build-only) only_build=yes ;;
    -*) sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    *) break ;;
  esac
  shift
done
if [ -f "${1:-}" ]; then
  mwbench=$(realpath "$1")
  shift
elif [[ "${1:-}" == */mwbench ]]; then
  echo "there is no program $1; without one the project's own is built" >&2
  exit 2
else
  build_mwbench
fi
[ $only_build = yes ] && { echo "$mwbench"; exit; }
processor=$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)
machine=$(echo "${processor:-unknown} $(nproc) cpus" | tr '[:upper:]' '[:lower:]' | tr -cs '[:alnum:]\n' '-')
folder=${1:-$here/results/$(date -u +%F)-$machine}
mkdir -p "$folder"

is_asked() { [ -z "$only" ] || [[ ",$only," == *",$1,"* ]]; }

# NAME PROGRAM OPTIONS...
compare() {
  is_asked "$1" || return 0
  echo "--- $1, $(date -u +%T)" >&2
  python3 "$here/peers/$2" "$mwbench" --json "$folder/$1.json" "${@:3}" > "$folder/$1.md"
}

# NAME, then questions of mwbench, one an argument.
ask_ourselves() {
  is_asked "$1" || return 0
  echo "--- $1, $(date -u +%T)" >&2
  local question
  for question in "${@:2}"; do
    # shellcheck disable=SC2086 # words
    "$mwbench" --json --no-launcher --limit 300 $question ||
      echo "$1: mwbench $question: no answer" >&2
  done > "$folder/$1.json"
  python3 "$here/markdown.py" "$folder/$1.json" > "$folder/$1.md"
}

# Jobs of roles: a program of its own, which is there where the library for them is built.
ask_graphs() {
  is_asked graphs || return 0
  local program=${mwbench%/*}/mwbench-graph tool=${mwbench%/*}/../src/tools/mwgraph
  if ! [ -x "$program" ] || ! [ -x "$tool" ]; then
    echo "graphs: left out, since $program or $tool is not built" >&2
    return 0
  fi
  echo "--- graphs, $(date -u +%T)" >&2
  "$program" --json --mwgraph "$(realpath "$tool")" "$@" > "$folder/graphs.json"
}

if [ $quick = yes ]; then
  few=(--rounds 1 --inner-rounds 1 --pings 2000)
  compare p2p compare.py --question p2p --sizes 8,64K,1M "${few[@]}"
  compare distances compare.py --question distances --sizes 8,64K "${few[@]}"
  compare pairs compare.py --question pairs --seconds 0.3 "${few[@]}"
  for members in 2 4; do
    compare "collectives-$members" compare.py --question collectives --members "$members" \
      --kinds broadcast,all_reduce,all_gather,barrier --collective-sizes 8,64K,1M \
      --collective-seconds 0.05 "${few[@]}"
  done
  compare barriers compare.py --question collectives --members 8 --kinds barrier --collective-seconds 0.2 "${few[@]}"
  ask_ourselves worlds 'worlds --rounds 1 --sizes 4,324,8748,236196'
  compare session session.py --workers 1,2 --count 200 --rounds 1
  compare fail fail.py --kills 1 --stops 1 --stop-limit 8
  ask_ourselves memory-kinds 'p2p --pin --rounds 1 --sizes 256M' \
    'p2p --pin --rounds 1 --sizes 256M --views 16384' 'p2p --pin --rounds 1 --sizes 1M --shared-buffers'
  compare tcp compare.py --question tcp --networks loopback,wire --largest 1M "${few[@]}"
  ask_ourselves tcp-ways 'uring --pin --rounds 1 --times 1 --pings 200' '--transport tcp beside --pin --pings 200'
  ask_ourselves refused '--refuse-reading p2p --pin --rounds 1 --sizes 1M'
  ask_ourselves recovery 'fail --fault kill --repeat 2 --alone' 'fail --fault stop --repeat 1' \
    'shrink --members 3 --repeat 2'
  ask_ourselves life 'form --repeat 2' 'cancel --size 64M' 'idle --worlds 64 --receives 1000 --seconds 1' \
    'memory --worlds 16'
  ask_ourselves growth 'scale --worlds 1,10 --seconds 0.5' 'scale --members 2,4 --seconds 0.5'
  compare store store.py --rounds 1 --count 500 --clients 100
  ask_ourselves launch 'process --repeat 10' 'rendezvous --repeat 1'
  compare launchers launch.py --rounds 1 --runs 20 --kills 4 --idle 2 --restarts 20
  ask_graphs --kills 2 --seconds 6 --processes 20
else
  compare p2p compare.py --question p2p --rounds 3
  # The host moves its CPUs each minute or so: short turns, and many.
  compare distances compare.py --question distances --sizes 8,1K,8K,64K --rounds 48 --inner-rounds 1
  compare pairs compare.py --question pairs
  sizes=(--collective-sizes '8,1K,8K,64K,256K,1M,16M' --collective-seconds 0.1)
  compare collectives-2 compare.py --question collectives --members 2 "${sizes[@]}" --rounds 3
  # Two rounds: on two CPUs MPICH alone takes minutes for each.
  compare collectives-4 compare.py --question collectives --members 4 "${sizes[@]}" --rounds 2
  compare barriers compare.py --question collectives --members 8,16,32 --kinds barrier --collective-seconds 1 --rounds 2
  ask_ourselves memory-kinds 'p2p --pin --sizes 256M' 'p2p --pin --sizes 256M --views 16384' \
    'p2p --pin --sizes 64K,1M,16M,64M --shared-buffers'
  compare tcp compare.py --question tcp --rounds 3 --inner-rounds 1
  ask_ourselves tcp-ways 'uring --pin' '--transport tcp beside --pin --pings 3000' \
    '--transport tcp worlds --worlds 4 --senders 1 --sizes 1M,16M'
  ask_ourselves refused '--refuse-reading p2p --pin --sizes 64K,1M,16M,64M'
  ask_ourselves worlds 'worlds --worlds 8' 'worlds --worlds 2 --sizes 78732,236196' \
    'worlds --worlds 64 --sizes 78732,236196'
  compare session session.py
  ask_ourselves sessions 'session --count 200'
  compare fail fail.py --kills 5 --stops 1
  ask_ourselves recovery 'fail --fault kill --repeat 20 --alone' 'fail --fault kill --repeat 20' \
    'fail --fault kill --members 4' 'fail --fault stop --repeat 2' 'fail --fault cut --members 4 --repeat 2' \
    'shrink --members 3' 'shrink --members 4'
  ask_ourselves life 'form' 'cancel --size 64M' 'idle --worlds 64 --receives 1000 --seconds 10' \
    'await' 'memory' '--transport tcp memory'
  ask_ourselves growth 'scale --worlds 1,10,100,1000 --pin' 'scale --members 2,4,8,16,32'
  compare store store.py
  ask_ourselves launch 'process --touched 0' 'process --touched 1024' 'rendezvous --repeat 20'
  compare launchers launch.py
  ask_graphs --kills 100
fi
for name in p2p collectives-2 collectives-4 worlds; do
  is_asked $name || continue
  "$mwbench" --no-launcher draw "$folder/$name.json" "$folder/$name.svg"
done
python3 "$here/peers/summary.py" "$folder" > "$folder/README.md"
echo "$folder" >&2
