#!/usr/bin/env bash
# The site of the documentation is built without a warning, needs no network, has no dead link, and works in a browser
# from its files, light and dark (site_browser.py).
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"

prepare()
{
    # grep reads to the end: with pipefail, a writer that it leaves alone would fail.
    ninja -C "$build" -t targets all | grep '^site:' >/dev/null ||
        skip "Sphinx, Doxygen or a module that they need is missing"
    ninja -C "$build" --quiet site >"$build/site.log" 2>&1 || { fail "the site cannot be built"; cat "$build/site.log"; }
}

case_it_is_built_without_a_warning()
{
    grep -i warning "$build/site.log" && fail "warnings"
}

case_links_and_files()
{
    python3 "$tests/docs/site.py" "$build/docs/html" || fail "site.py"
}

case_in_a_browser()
{
    local one python=
    for one in python3 /usr/bin/python3; do
        if "$one" -c 'import selenium' 2>/dev/null; then python=$one && break; fi
    done
    [ -n "$python" ] && command -v chromium >/dev/null && command -v chromedriver >/dev/null ||
        skip "python3-selenium, chromium or its driver is not installed"
    "$python" "$tests/docs/site_browser.py" "$build/docs/html" || fail "site_browser.py"
}

run_cases
