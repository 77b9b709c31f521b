#!/bin/sh
# Make the user that runs everything, and the only two folders that it may write.
#
#   user.sh [ROOT]      ROOT: where / is, for tests; nothing by default
set -eu

root=${1:-}
id=10001
grep -q "^bigsap:" "$root/etc/group" || printf 'bigsap:x:%s:\n' "$id" >>"$root/etc/group"
grep -q "^bigsap:" "$root/etc/passwd" ||
    printf 'bigsap:x:%s:%s:BigSAP:/tmp:/usr/sbin/nologin\n' "$id" "$id" >>"$root/etc/passwd"
for folder in /data /var/cache/bigsap; do
    mkdir -p "$root$folder"
    chown "$id:$id" "$root$folder"
    chmod 750 "$root$folder"
done
