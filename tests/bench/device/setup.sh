# Sourced by one.sh and two.sh: caches that can be written, and how a suite is run.
export PYTHONUNBUFFERED=1 NUMBA_CACHE_DIR=/tmp/numba OUT=${OUT:-/tmp/out}
mkdir -p "$OUT" /tmp/numba
export PYTHONPATH=$PWD:$PWD/tests/support:${PYTHONPATH:-}
python3 -c 'import numba, numpy, cupy, bigsap; print("numba", numba.__version__, "numpy", numpy.__version__, "cupy", cupy.__version__, bigsap.__file__)'
clock=$SECONDS
said() { echo "== $* ($((SECONDS - clock)) s)"; }
tests() { # name, seconds, arguments
    local name=$1 limit=$2
    shift 2
    timeout "$limit" python3 -m pytest -q -p no:cacheprovider -p no:benchmark --tb=short -o addopts= "$@" >"$OUT/$name.log" 2>&1
    echo "$name: rc $?"
    grep -E '^(FAILED|ERROR)|^E  |passed|failed' "$OUT/$name.log" | cut -c1-220 | head -40
}
