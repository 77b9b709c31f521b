#!/bin/sh
# Compile every kernel into NUMBA_CACHE_DIR, so that the first job starts at once.
#
#   NUMBA_CACHE_DIR=/var/cache/bigsap/numba warm.sh VENV
#
# Kernels are compiled for this machine's processor and kept with its name: a container on
# another kind of processor compiles its own on first use. The folder must be writable now,
# and it should be writable later.
set -eu

venv=$1
: "${NUMBA_CACHE_DIR:?must name the folder of compiled kernels}"
mkdir -p "$NUMBA_CACHE_DIR"
# From a folder without a bigsap/ of its own: what is installed is what is compiled.
cd /
exec "$venv/bin/bigsap" warmup
