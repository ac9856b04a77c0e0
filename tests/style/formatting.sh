#!/usr/bin/env bash
# Every source of C and C++ is as clang-format leaves it; exit status 77 (skipped) without clang-format.
set -euo pipefail
cd "$(dirname "$0")/../.."
command -v clang-format >/dev/null || { echo "skipped: formatting: clang-format is not installed"; exit 77; }
if git rev-parse 2>/dev/null; then
    git ls-files -co --exclude-standard -z '*.c' '*.h' '*.cc' | while IFS= read -r -d '' file; do
        if [ -e "$file" ]; then printf '%s\0' "$file"; fi
    done
else
    find . -path './build*' -prune -o \( -name '*.c' -o -name '*.h' -o -name '*.cc' \) -print0
fi | xargs -0 clang-format --dry-run -Werror
