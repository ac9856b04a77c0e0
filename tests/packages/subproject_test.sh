#!/usr/bin/env bash
# README's program as a meson project that has weft as a subproject: weft builds its library there,
# without the program and the tests (docs/install.md). Usage: subproject_test.sh BUILD_FOLDER, for the project
set -euo pipefail
source=$(realpath "$(dirname "$0")/../..")
mkdir -p "$1"
cd "$1"
rm -rf project
mkdir -p project/subprojects
ln -s "$source" project/subprojects/weft
awk '/^```c$/ { on = 1; next } /^```$/ { if (on) exit } on' "$source/README.md" >project/first.c
awk '/^```meson$/ { on = 1; next } /^```$/ { if (on) exit } on' "$source/docs/install.md" >project/meson.build
meson setup project/build project --force-fallback-for=weft -Dweft:isa=base >log 2>&1 || { tail -n 20 log; exit 1; }
meson compile -C project/build first >log 2>&1 || { tail -n 20 log; exit 1; }
for part in tools tests; do
    if ninja -C project/build -t targets all | grep "^subprojects/weft/$part/"; then
        echo "weft's $part are part of a project that has weft as a subproject"
        exit 1
    fi
done
project/build/first >output || { cat output; exit 1; }
grep '^loss of XOR after 200 steps: 0\.0' output
