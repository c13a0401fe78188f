#!/bin/bash
# Installs what Debian and Ubuntu package of the libraries that compare.py runs beside
# ours: UCX, Gloo, Open MPI and MPICH (both MPIs side by side, as mpicc.openmpi,
# mpicc.mpich ...).
set -euo pipefail
as_root=()
if [ "$(id -u)" != 0 ]; then as_root=(sudo); fi

"${as_root[@]}" apt-get update
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y --no-install-recommends \
  ucx-utils libucx-dev libgloo-dev openmpi-bin libopenmpi-dev mpich libmpich-dev
