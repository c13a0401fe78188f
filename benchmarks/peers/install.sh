#!/bin/bash
# Installs what compare.py, fail.py and store.py run beside ours: install.sh [--torch] [--multiworld] [--etcd] [--tvm] [--ray]
#
# Always what Debian and Ubuntu package: UCX, Gloo, Open MPI and MPICH (both MPIs side by side, as
# mpicc.openmpi, mpicc.mpich ...), torch with its gloo. 1.1 GB.
# --torch       the newest torch of PyPI instead, below build/peers/torch. With its CUDA 5 GB or more.
# --etcd        etcd, Go and etcd's own client for it, all of Debian. 0.8 GB.
# --tvm         Apache TVM, with Disco, below build/peers/tvm. 0.3 GB.
# --ray         Ray, below build/peers/ray. 0.3 GB.
# --multiworld  MultiWorld and the one torch it patches, below build/peers/multiworld. 5 GB.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${PEERS_BUILD:-$here/../../build/peers}
as_root=()
if [ "$(id -u)" != 0 ]; then as_root=(sudo); fi

"${as_root[@]}" apt-get update
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
  iperf3 iproute2 ucx-utils libucx-dev libgloo-dev openmpi-bin libopenmpi-dev mpich libmpich-dev \
  python3-torch python3-venv patch

# MultiWorld's torch has no wheels for a Python newer than 3.12: PYTHON names another.
make_venv() {
  "${PYTHON:-python3}" -m venv "$build/$1"
  "$build/$1/bin/pip" install "${@:2}"
}

for what in "$@"; do
  case $what in
    --torch) make_venv torch torch numpy ;;
    --tvm) make_venv tvm apache-tvm==0.27.0.post1 numpy ;;
    --ray) make_venv ray ray ;;
    --etcd)
      "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        etcd-server golang-go golang-etcd-server-dev
      ;;
    --multiworld)
      make_venv multiworld multiworld numpy
      # Its first import patches the torch beside it, says so and ends with an error.
      "$build/multiworld/bin/python" -c 'import multiworld' || true
      "$build/multiworld/bin/python" -c 'import multiworld.manager'
      ;;
    *) sed -n 2,11p "$0" >&2; exit 2 ;;
  esac
done
