# Sourced by the scripts of this folder: Debian packages for other processors, sources, and a newer QEMU, which a case
# unpacks into its folder. Nothing is installed.

# debian ARCHITECTURE COMMAND...: apt-get with lists of its own, of the system's archive, or, with `backports`, of newer
# packages for the system's release. Skips without an archive.
debian()
{
    local options=(-o "Dir::State=$PWD/apt" -o "Dir::State::status=/dev/null" -o "Dir::Cache=$PWD/apt" -o APT::Sandbox::User=root
        -o "Dir::Etc::SourceList=$PWD/apt/sources" -o Dir::Etc::SourceParts=- -o "APT::Architecture=$1" -o "APT::Architectures=$1")
    if [ ! -d apt ]; then
        command -v apt-get >/dev/null || skip "apt-get is not installed"
        mkdir -p apt/lists/partial apt/archives/partial
        apt-get indextargets --format "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \$(REPO_URI) \$(RELEASE)${backports:+-backports} main" \
            'Created-By: Packages' 'Origin: Debian' 'Component: main' | sort -u | grep -v -e -security -e -updates |
            sed 's/^/deb /; p; s/^deb/deb-src/' >apt/sources
        apt-get "${options[@]}" update >apt/log 2>&1 && [ -s apt/sources ] || skip "the Debian archive cannot be reached"
    fi
    apt-get "${options[@]}" "${@:2}" >>apt/log 2>&1 || fail "apt-get ${*:2}: $(tail -n 3 apt/log)"
}

# libraries_for ARCHITECTURE FAMILY: the libraries that weft needs, in ./system, and ./cross.ini for them.
libraries_for()
{
    local lib=system/usr/lib/$2-linux-gnu package
    debian "$1" download libcjson-dev libcjson1 libzip-dev libzip4 zlib1g-dev zlib1g libprotobuf-c-dev libprotobuf-c1 \
        libcunit1-dev libcunit1 libbz2-1.0 liblzma5 libzstd1 libssl3 libpcre2-dev libpcre2-8-0 libutf8proc-dev libutf8proc2
    for package in *.deb; do dpkg -x "$package" system; done
    # The C library of the compiler first: its loader does not work with another one, which the system may have.
    library_path=/usr/$2-linux-gnu/lib:$PWD/$lib:$PWD/system/lib/$2-linux-gnu
    cross_file "$2-linux-gnu-gcc" "$2" little "$2-linux-gnu-" \
        "'qemu-$2', '-L', '/usr/$2-linux-gnu', '-E', 'LD_LIBRARY_PATH=$library_path'" >cross.ini
    cat >>cross.ini <<-END
		[properties]
		sys_root = '$PWD/system'
		pkg_config_libdir = '$PWD/$lib/pkgconfig'
		[built-in options]
		c_args = ['-isystem$PWD/system/usr/include', '-isystem$PWD/system/usr/include/$2-linux-gnu']
		c_link_args = ['-L$PWD/$lib', '-Wl,-rpath-link,$library_path']
	END
}

# qemu_with_vectors PROCESSOR: $qemu, a QEMU of version 10 or newer. Version 7 stops at vfcvt.rtz, which converts vectors
# of floats to integers, with a failed assertion.
qemu_with_vectors()
{
    local backports=yes
    qemu=qemu-$1
    "$qemu" --version 2>/dev/null | grep 'version [1-9][0-9]\.' >/dev/null && return
    command -v dpkg >/dev/null || skip "qemu-$1 of version 10 or newer is not installed"
    debian "$(dpkg --print-architecture)" download qemu-user && dpkg -x qemu-user_*.deb newer || return
    qemu=$PWD/newer/usr/bin/qemu-$1
}

# static_libraries COMPILER: cJSON, protobuf-c and zlib, built from Debian's sources by a compiler into ./static.
static_libraries()
{
    command -v dpkg-source >/dev/null || skip "dpkg-source is not installed"
    debian "$(dpkg --print-architecture)" source cjson protobuf-c zlib
    # The headers have another path each time, which a cache of the compiler must not see.
    export CCACHE_BASEDIR=$PWD
    mkdir -p static/include/cjson static/include/protobuf-c static/lib/pkgconfig
    "$1" -O2 -c cjson-*/cJSON.c && ar rcs static/lib/libcjson.a cJSON.o && cp cjson-*/cJSON.h static/include/cjson &&
        "$1" -O2 -I protobuf-c-*/ -c protobuf-c-*/protobuf-c/protobuf-c.c && ar rcs static/lib/libprotobuf-c.a protobuf-c.o &&
        cp protobuf-c-*/protobuf-c/protobuf-c.h static/include/protobuf-c &&
        (cd zlib-*/ && CC=$1 ./configure --static && make libz.a) >zlib.log 2>&1 &&
        cp zlib-*/libz.a static/lib && cp zlib-*/zlib.h zlib-*/zconf.h static/include ||
        fail "building the libraries: $(tail -n 3 zlib.log)"
    pc_file libcjson cjson 1.7
    pc_file libprotobuf-c protobuf-c 1.4
    pc_file zlib z 1.2
}

# pc_file PACKAGE LIBRARY VERSION: what pkg-config says of a static library.
pc_file()
{
    cat >"static/lib/pkgconfig/$1.pc" <<-END
		Name: $1
		Description: a static library
		Version: $3
		Libs: -L$PWD/static/lib -l$2
		Cflags: -I$PWD/static/include
	END
}
