# Sourced by programs_test.sh: Debian packages for other processors, which a case unpacks into its folder. Nothing is
# installed.

# debian ARCHITECTURE COMMAND...: apt-get with lists of its own, of the system's archive. Skips without an archive.
debian()
{
    local options=(-o "Dir::State=$PWD/apt" -o "Dir::State::status=/dev/null" -o "Dir::Cache=$PWD/apt" -o APT::Sandbox::User=root
        -o "Dir::Etc::SourceList=$PWD/apt/sources" -o Dir::Etc::SourceParts=- -o "APT::Architecture=$1" -o "APT::Architectures=$1")
    if [ ! -d apt ]; then
        command -v apt-get >/dev/null || skip "apt-get is not installed"
        mkdir -p apt/lists/partial apt/archives/partial
        apt-get indextargets --format "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \$(REPO_URI) \$(RELEASE) main" \
            'Created-By: Packages' 'Origin: Debian' 'Component: main' | sort -u | grep -v -e -security -e -updates |
            sed 's/^/deb /' >apt/sources
        apt-get "${options[@]}" update >apt/log 2>&1 && [ -s apt/sources ] || skip "the Debian archive cannot be reached"
    fi
    apt-get "${options[@]}" "${@:2}" >>apt/log 2>&1 || fail "apt-get ${*:2}: $(tail -n 3 apt/log)"
}

# libraries_for ARCHITECTURE FAMILY: the libraries that weft needs, in ./system, and ./cross.ini for them.
libraries_for()
{
    local lib=system/usr/lib/$2-linux-gnu package
    debian "$1" download libcjson-dev libcjson1 libzip-dev libzip4 zlib1g-dev zlib1g libprotobuf-c-dev libprotobuf-c1 \
        libcunit1-dev libcunit1 libbz2-1.0 liblzma5 libzstd1 libssl3
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
