#!/bin/sh
# Print the extras to install for a version of CUDA.
#
#   gpu_extras.sh 12|13
set -eu

case ${1:-} in
12 | 13) printf 'server,zarr,gpu%s\n' "$1" ;;
*)
    printf 'gpu_extras.sh: CUDA must be 12 or 13, got "%s"\n' "${1:-}" >&2
    exit 1
    ;;
esac
