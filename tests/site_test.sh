#!/usr/bin/env bash
# The site of the documentation is built without a warning, needs no network, and has no dead link.
# Usage: site_test.sh BUILD_FOLDER
set -uo pipefail
build=$(realpath "$1")
root=$(realpath "$(dirname "$0")/..")
if ! ninja -C "$build" -t targets all | grep -q '^site:'; then
    echo "skipped: the site of the documentation: Sphinx, Doxygen or a module that they need is missing"
    exit 0
fi
ninja -C "$build" --quiet site >"$build/site.log" 2>&1 || { cat "$build/site.log"; exit 1; }
if grep -i warning "$build/site.log"; then exit 1; fi
python3 "$root/tests/site.py" "$build/docs/html"
