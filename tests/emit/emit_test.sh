#!/usr/bin/env bash
# What weft_emit writes, compiled by gcc and clang without libm, has the bits of the library: all ops, and the models
# of the list, forward and as a training step. Usage: emit_test.sh BUILD_FOLDER [--list] [-k PATTERN]
set -uo pipefail
tests=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tests/support/cases.sh
. "$tests/support/cases.sh"
