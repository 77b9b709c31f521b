#!/bin/sh
# The service by curl alone: upload two point sets, submit, wait, fetch.
#
#     bigsap serve &
#     examples/service_curl.sh                             # 300 points
#     examples/service_curl.sh http://host:8765 KEY
#     examples/service_curl.sh --full                      # 20,000 points
#
# Needs curl 7.82 or newer, and python3 for making points and reading fields of JSON.
#
# Measured on 2 shared cores: 20,000 points (full size) in 3.4 s, uploads and downloads included;
# 300 points, cost 15.5834, gap 2e-15, in a few seconds.
set -eu

n=300
if [ "${1:-}" = --full ]; then
    n=20000
    shift
fi
url=${1:-${BIGSAP_URL:-http://127.0.0.1:8765}}
key=${2:-${BIGSAP_KEY:-}}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

call() { # curl with the key; fails, showing the problem document, when the service refuses
    curl --silent --show-error --fail-with-body ${key:+-H "Authorization: Bearer $key"} "$@"
}

field() { # field NAME < JSON: names apart by dots
    python3 -c 'import json, sys
value = json.load(sys.stdin)
for name in sys.argv[1].split("."): value = value[name]
print(value)' "$1"
}

# n x 2 little-endian float64, as they lie in memory
points() {
    python3 -c 'import array, random, sys
random.seed(int(sys.argv[2])); n = int(sys.argv[1])
array.array("d", (random.random() for _ in range(2 * n))).tofile(sys.stdout.buffer)' "$n" "$1"
}

upload() { # upload FILE: the id of the sealed array
    id=$(call "$url/v1/arrays" --json "{\"dtype\": \"f8\", \"shape\": [$n, 2]}" | field id)
    call -X PUT "$url/v1/arrays/$id/rows/0" -H 'Content-Type: application/octet-stream' \
        --data-binary "@$1" >/dev/null
    call -X POST "$url/v1/arrays/$id/seal" >/dev/null
    echo "$id"
}

points 1 >"$folder/x"
points 2 >"$folder/y"
x=$(upload "$folder/x")
y=$(upload "$folder/y")
echo "uploaded $x and $y"

cat >"$folder/job.json" <<JSON
{"cost": {"type": "points", "metric": "euclidean", "x": {"array": "$x"}, "y": {"array": "$y"}},
 "label": "by curl"}
JSON
printf 'dry run: about %s seconds, %s bytes\n' \
    "$(call "$url/v1/jobs?dry_run=true" --json "@$folder/job.json" | field estimate.seconds)" \
    "$(call "$url/v1/jobs?dry_run=true" --json "@$folder/job.json" | field estimate.memory_bytes)"

job=$(call "$url/v1/jobs" -H "Idempotency-Key: curl-$$-$x" --json "@$folder/job.json" | field id)
echo "submitted $job"

# The event stream ends with the job.
call --no-buffer -H 'Accept: text/event-stream' "$url/v1/jobs/$job/events" |
    sed -n 's/^event: */event: /p' | uniq -c

call "$url/v1/jobs/$job/result" >"$folder/result.json"
printf '%s: cost %s, bound %s, gap %s\n' \
    "$(field status <"$folder/result.json")" "$(field objective <"$folder/result.json")" \
    "$(field bound <"$folder/result.json")" "$(field gap <"$folder/result.json")"

call -H 'Accept: application/x-npy' "$url/v1/jobs/$job/result/col4row" -o "$folder/col4row.npy"
echo "col4row.npy: $(wc -c <"$folder/col4row.npy") bytes; the first pairs:"
call -H 'Accept: text/csv' "$url/v1/jobs/$job/result/col4row?limit=3"
