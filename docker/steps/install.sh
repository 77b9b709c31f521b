#!/bin/sh
# Install BigSAP from a source tree into a virtual environment of its own.
#
#   install.sh SOURCE VENV EXTRAS      e.g. install.sh /src /opt/bigsap server,zarr
#
# What nothing needs that runs is taken out again (slim.py).
# Nothing of the source tree is needed afterwards, and pip compiles the byte code, so that the
# code directory may be read-only when it runs.
set -eu

steps=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
source_tree=$1
venv=$2
extras=$3

python3 -m venv "$venv"
# --no-cache-dir keeps downloads out of the image; a test may set PIP_CACHE_DIR instead.
cache=--no-cache-dir
[ -z "${PIP_CACHE_DIR:-}" ] || cache=
# shellcheck disable=SC2086  # $cache is one option or none
"$venv/bin/python" -m pip install --disable-pip-version-check --no-input $cache \
    "${source_tree}[${extras}]"
"$venv/bin/python" "$steps/slim.py" "$venv"
