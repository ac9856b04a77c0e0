#!/usr/bin/env bash
# Installs into a prefix of its own, then builds and runs programs there with nothing but what
# pkg-config says: a small one, and those that stand in documents, as they stand there.
# Usage: install_test.sh BUILD_FOLDER
set -euo pipefail
build=$1
source=$(realpath "$(dirname "$0")/..")
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
DESTDIR="$prefix" meson install -C "$build" --no-rebuild >/dev/null
root=$(dirname "$(find "$prefix" -name weft.pc)")
cat >"$prefix/first.c" <<'C'
#include <weft/weft.h>
int main(void)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_fill(g, WEFT_F32, WEFT_SHAPE(3, 4), 2.0);
    weft_value y = weft_sum(g, weft_matmul(g, x, weft_transpose(g, x, 0, 1)), WEFT_ALL_AXES, false);
    weft_plan *plan = weft_plan_new(g, &y, 1, NULL, NULL);
    weft_session *s = weft_session_new(plan, NULL, NULL, NULL);
    float sum = 0;
    if (weft_run(s) != WEFT_OK || weft_fetch(s, y, &sum, sizeof sum) != WEFT_OK) return 1;
    weft_session_free(s), weft_plan_free(plan), weft_graph_free(g);
    return printf("%g\n", sum) < 0;
}
C
export PKG_CONFIG_PATH=$root PKG_CONFIG_SYSROOT_DIR=$prefix
# shellcheck disable=SC2046
${CC:-cc} -Wall -Werror "$prefix/first.c" $(pkg-config --cflags --libs weft) -o "$prefix/first"
library=$(dirname "$(find "$prefix" -name 'libweft.so')")
got=$(LD_LIBRARY_PATH=$library "$prefix/first")
[ "$got" = 144 ] || { echo "the installed program printed '$got', not 144"; exit 1; }
echo "installed, linked and run: $got"

# The first block of C in a document.
cd "$prefix"
for document in README.md docs/new-architecture.md; do
    sed -n '/^```c$/,/^```$/p' "$source/$document" | sed -e '1d' -e '/^```$/,$d' >document.c
    [ -s document.c ] || { echo "$document has no program"; exit 1; }
    # shellcheck disable=SC2046
    ${CC:-cc} -Wall -Wextra -Werror document.c $(pkg-config --cflags --libs weft) -o document
    LD_LIBRARY_PATH=$library ./document || { echo "the program of $document failed"; exit 1; }
done
grep -q "digraph weft" mixer.dot || { echo "the mixer is not drawn"; exit 1; }
