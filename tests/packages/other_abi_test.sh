#!/usr/bin/env bash
# Shared libraries that do not fit a program, or each other: the loader says so in a line, and nothing runs.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"

# A program of libweft and libweft-models, with copies of them.
prepare()
{
    command -v readelf >/dev/null || skip "readelf is not installed"
    readelf -V "$build/libweft.so.0" 2>/dev/null | grep 'WEFT_0$' >/dev/null || skip "symbols have no versions here"
    cat >program.c <<-END
		#include <weft/layers.h>
		#include <weft/weft.h>
		#include <stdio.h>
		int main(void)
		{
		    weft_nn_linear(NULL, "none", WEFT_NO_VALUE, 1, true);
		    puts(weft_version());
		}
	END
    cp -L "$build"/libweft.so.0 "$build"/libweft-models.so.0 .
    ${CC:-cc} program.c -I"$root"/graph -I"$root"/ops -I"$root"/autograd -I"$root"/models -I"$build/graph" \
        libweft-models.so.0 libweft.so.0 -o program || fail "the program is not linked"
}

# prints STATUS TEXT: the program ends with this status, and prints nothing but lines with this text.
prints()
{
    expect "$1" "$2" env LD_LIBRARY_PATH=. ./program
    ! LD_LIBRARY_PATH=. ./program 2>&1 | grep -vF -- "$2" || fail "it prints more"
}

# rename_version LIBRARY FROM TO: another name, of the same length, for a symbol version that a library has.
rename_version()
{
    LC_ALL=C sed -i "s/\\x00$2\\x00/\\x00$3\\x00/" "$1"
    readelf -V "$1" | grep "Name: $3" >/dev/null || fail "$1 has no version $3"
}

case_the_same_libraries()
{
    prints 0 "$(LD_LIBRARY_PATH=. ./program)"
}

case_only_another_ABI_number()
{
    mv libweft.so.0 libweft.so.1
    prints 127 "libweft.so.0: cannot open shared object file"
}

case_another_ABI_by_the_same_name()
{
    rename_version libweft.so.0 WEFT_0 WEFT_1
    prints 1 "version \`WEFT_0' not found"
}

case_libraries_of_two_versions()
{
    local version
    version=$(LD_LIBRARY_PATH=. ./program)
    rename_version libweft.so.0 "WEFT_PRIVATE_$version" "WEFT_PRIVATE_${version//[0-9]/9}"
    prints 1 "version \`WEFT_PRIVATE_$version' not found (required by ./libweft-models.so.0)"
}

run_cases
