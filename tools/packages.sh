# Sourced by tools/demo and tools/test: installs Debian packages that are missing.

weft_packages=(gcc g++ meson ninja-build pkg-config libopenblas-openmp-dev libcunit1-dev
    libgraphviz-dev libsentencepiece-dev libcjson-dev libzip-dev zlib1g-dev gnuplot-nox
    libprotobuf-c-dev protobuf-c-compiler libmicrohttpd-dev libpcre2-dev libutf8proc-dev libturbojpeg0-dev libpng-dev
    python3-minimal node-d3 node-dagre-layout)

# need_packages PACKAGE...: installs those that are missing, and says so.
need_packages()
{
    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        if [ -n "${WEFT_SKIP_PACKAGES:-}" ]; then return 0; fi
        echo "This is not a Debian system. Install what these Debian packages hold, then run again with" >&2
        echo "WEFT_SKIP_PACKAGES=1: $*" >&2
        exit 1
    fi
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
            missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    echo "Installing missing packages: ${missing[*]}"
    local sudo=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || { echo "installing needs root, or sudo" >&2; exit 1; }
        sudo=(sudo)
    fi
    local log
    log=$(mktemp)
    if ! { "${sudo[@]}" apt-get update && "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        echo "the packages could not be installed; the whole output is in $log" >&2
        exit 1
    fi
    rm -f "$log"
}

# configure FOLDER OPTION...: sets a build folder up once; quiet unless it fails.
configure()
{
    local folder=$1 log
    shift
    [ -f "$folder/build.ninja" ] && return 0
    log=$(mktemp)
    meson setup "$folder" "$@" >"$log" 2>&1 || { tail -n 20 "$log" >&2; rm -f "$log"; exit 1; }
    rm -f "$log"
}
