#!/bin/sh
# One entrypoint for all roles:
#
#   serve       the service (default)
#   scheduler   a Dask scheduler for several machines
#   worker      a Dask worker, one job at a time, for the scheduler in BIGSAP_SCHEDULER
#   key         make an access key: key NAME read submit
#   anything else is a command of `bigsap`, such as solve, info or submit
#
# Each role replaces this shell (exec), so that signals reach it.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
venv=${BIGSAP_VENV:-/opt/bigsap}
PATH=$venv/bin:$PATH
export PATH

role=${1:-serve}
[ $# -eq 0 ] || shift

# Kernels came with the image; what it has not is compiled, and kept here.
own=${BIGSAP_CACHE:-/var/cache/bigsap}
cache=${NUMBA_CACHE_DIR:-$own/numba}
if ! mkdir -p "$cache" 2>/dev/null || ! [ -w "$cache" ]; then
    # Another user than the image's (docker run --user) may not enter the image's own folder,
    # and gets a private one. A folder that somebody named must do.
    if [ "$cache" != "$own/numba" ] || ! private=$(mktemp -d 2>/dev/null); then
        printf 'entrypoint: NUMBA_CACHE_DIR=%s must be a folder that can be written; mount a volume or a tmpfs there\n' "$cache" >&2
        exit 1
    fi
    cache=$private/numba
    mkdir "$cache"
    [ "${CUPY_CACHE_DIR:-}" != "$own/cupy" ] || export CUPY_CACHE_DIR="$private/cupy"
fi
export NUMBA_CACHE_DIR="$cache"

# What health.py asks for, and the port where it does.
note_role() {
    printf '%s %s\n' "$role" "$1" >"${BIGSAP_ROLE_FILE:-/tmp/bigsap-role}"
}

# The port of the service: arguments win over the variable.
service_port() {
    port=${BIGSAP_PORT:-8765} last=
    for word in "$@"; do
        case $word in --port=*) port=${word#--port=} ;; esac
        [ "$last" != --port ] || port=$word
        last=$word
    done
    printf '%s' "$port"
}

# The way of the service: a lost attempt comes back to it, which counts attempts and
# continues from the checkpoint; and a row cache may fill the memory.
dask_settings() {
    export DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES=0
    export DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING=False
    export DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD=spawn
    export DASK_DISTRIBUTED__WORKER__MEMORY__TARGET=False
    export DASK_DISTRIBUTED__WORKER__MEMORY__SPILL=False
    export DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE=False
    export DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE=False
    export DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED=False
}

case $role in
serve)
    note_role "$(service_port "$@")"
    exec bigsap serve "$@"
    ;;
scheduler)
    note_role "${BIGSAP_HEALTH_PORT:-8787}"
    dask_settings
    # Whoever reaches a scheduler can run code on it: a private network only.
    exec dask scheduler \
        --host "${BIGSAP_SCHEDULER_HOST:-0.0.0.0}" \
        --port "${BIGSAP_SCHEDULER_PORT:-8786}" \
        --dashboard-address "127.0.0.1:${BIGSAP_HEALTH_PORT:-8787}" "$@"
    ;;
worker)
    : "${BIGSAP_SCHEDULER:?a worker needs the address of a scheduler, tcp://host:8786}"
    note_role "${BIGSAP_HEALTH_PORT:-8787}"
    dask_settings
    # No nanny: the platform starts a container anew, and signals reach the worker itself,
    # where preload.py has running solves write their checkpoints.
    exec dask worker "$BIGSAP_SCHEDULER" \
        --no-nanny --nthreads 1 --memory-limit 0 \
        --local-directory "${BIGSAP_SCRATCH:-/tmp}" \
        --dashboard-address "127.0.0.1:${BIGSAP_HEALTH_PORT:-8787}" \
        --preload "$here/preload.py" "$@"
    ;;
key)
    exec bigsap keys "$@"
    ;;
*)
    exec bigsap "$role" "$@"
    ;;
esac
