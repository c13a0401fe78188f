#!/bin/bash
# Asks mwbench everything and prints one JSON object a line, as in results/: measure.sh MWBENCH
set -euo pipefail
mwbench=${1:?usage: measure.sh MWBENCH}

for engine in io_uring epoll; do
  "$mwbench" --json --engine "$engine" p2p --pin --idle-worlds 63
done
"$mwbench" --json --refuse-reading p2p --pin
"$mwbench" --json p2p --shared-buffers --pin
"$mwbench" --json p2p --sizes 256M --views 16384 --pin
"$mwbench" --json pairs
"$mwbench" --json fail --fault kill --repeat 20
"$mwbench" --json fail --fault kill --repeat 20 --alone
"$mwbench" --json fail --fault stop --repeat 3
"$mwbench" --json shrink --members 3
"$mwbench" --json shrink --members 4
"$mwbench" --json form
"$mwbench" --json idle
"$mwbench" --json cancel
"$mwbench" --json fail --fault cut --members 4 --repeat 3
"$mwbench" --json worlds --pin
"$mwbench" --json collectives --pin
"$mwbench" --json collectives --check --seconds 0.05
"$mwbench" --json await --pin
"$mwbench" --json memory
for transport in shm tcp; do
  "$mwbench" --json --transport "$transport" scale --pin
done
