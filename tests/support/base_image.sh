#!/bin/sh
# Make an image that stands for python:3.11-slim-bookworm from Debian's own packages, where no
# registry of images can be reached: Debian's minimal system with its Python, and, as in the
# slim images, no documentation, translations, lists of packages and downloads.
#
#   base_image.sh FOLDER NAME [OPTION...]      options of every call of buildah: its storage
#
# Needs root, debootstrap and buildah; two or three minutes, 100 MB of downloads.
set -eu

folder=$1
name=$2
shift 2
root=$folder/root

sources=/etc/apt/sources.list.d/debian.sources
mirror=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p' "$sources" 2>/dev/null | head -n 1)
mkdir -p "$folder"
[ -x "$root/usr/bin/python3" ] || debootstrap --variant=minbase \
    --include=python3,python3-venv,ca-certificates bookworm "$root" \
    "${mirror:-http://deb.debian.org/debian}" >"$folder/log" 2>&1 || {
    tail -n 20 "$folder/log" >&2
    rm -rf "$root"
    exit 1
}
ln -sf python3 "$root/usr/bin/python"
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/log/* \
    "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/info/* \
    "$root"/usr/share/locale/*
find "$root/usr" -name __pycache__ -type d -prune -exec rm -rf {} +

container=$(buildah "$@" from scratch)
buildah "$@" add --quiet "$container" "$root" / >/dev/null
buildah "$@" config --cmd python3 "$container"
buildah "$@" commit --quiet --rm "$container" "$name" >/dev/null
