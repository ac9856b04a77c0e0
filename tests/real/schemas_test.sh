#!/usr/bin/env bash
# Holds constraints by JSON Schemas (weft/constraint.h) against the package jsonschema, on random schemas: documents that a
# constraint writes are valid, valid ones in its form match, and no invalid one does. Fetches the package from PyPI, and
# skips where that fails. Usage: schemas_test.sh BUILD_FOLDER [SCHEMAS [SEED]]
set -euo pipefail
build=$(realpath "$1")
subject=schemas
cd "$(dirname "$0")/../.."
# shellcheck source=tests/real/packages.sh
. tests/real/packages.sh
library=$build/libweft-tokenizers.so
[ -e "$library" ] || skip "$library was not built"
python_with jsonschema jsonschema
"$python" tests/real/compare_schemas.py "$library" "${2:-300}" "${3:-1}"
