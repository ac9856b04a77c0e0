#!/usr/bin/env bash
# Builds the Debian packages from a copy of the tree, checks them with lintian, and installs them in a
# clean root, where README's program is compiled and run, and the commands of the program. They are built without
# optimisation, as most of the time is that of the compiler; other tests are of what optimised code computes.
# Usage: debian_test.sh FOLDER, which is made; needs root and a mirror.
set -euo pipefail
if [ $# -ne 1 ] || [ -e "$1/build.ninja" ]; then
    echo "usage: debian_test.sh FOLDER, which is not a folder of meson: old packages in it are removed" >&2
    exit 2
fi
source=$(realpath "$(dirname "$0")/../..")
mkdir -p "$1"
folder=$(realpath "$1")
root=$folder/root
skip()
{
    echo "skipped: Debian packages: $*"
    exit 77
}
for command in dpkg-buildpackage dh lintian debootstrap unshare git; do
    command -v $command >/dev/null || skip "$command is not installed"
done
[ "$(id -u)" = 0 ] || skip "a clean root needs the rights of root"
unshare --mount true 2>/dev/null || skip "mounts are not permitted here"
rm -f "$folder/null"
{ mknod "$folder/null" c 1 3 && echo >"$folder/null"; } 2>/dev/null || skip "devices are not permitted here"
rm -f "$folder/null"
suite=$(. /etc/os-release && [ "$ID" = debian ] && echo "$VERSION_CODENAME") || skip "this is not Debian"
mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk -v suite="$suite" '$2 == suite && $3 == "main" { sub("/$", "", $1); print $1; exit }')
[ -n "$mirror" ] || skip "apt has no mirror of $suite"
/usr/lib/apt/apt-helper download-file "$mirror/dists/$suite/InRelease" "$folder/InRelease" >/dev/null 2>&1 ||
    skip "$mirror cannot be reached"
git -C "$source" rev-parse 2>/dev/null || skip "this is not a checkout of the repository"

# fail TEXT [LOG]
fail()
{
    [ -z "${2:-}" ] || tail -n 30 "$2"
    echo "Debian packages: $1"
    exit 1
}
# The clean root is made while the packages are built.
trap 'rm -rf "$root" "$folder/weft"' EXIT
rm -rf "$root" "$folder"/weft* "$folder"/*.deb
mkdir "$folder/weft"
debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$folder/root.log" 2>&1 &
clean=$!

cd "$source"
git ls-files -co --exclude-standard -z | while IFS= read -r -d '' file; do
    [ -e "$file" ] && printf '%s\0' "$file"
done | tar -c --null -T - | tar -x -C "$folder/weft"
cd "$folder/weft"
dpkg-checkbuilddeps 2>"$folder/build.log" || skip "$(cat "$folder/build.log")"
DEB_BUILD_OPTIONS="nocheck noautodbgsym noopt parallel=$(nproc)" dpkg-buildpackage -b -us -uc >"$folder/build.log" 2>&1 ||
    fail "they cannot be built" "$folder/build.log"
cd "$folder"
# Lintian expects a man page of the program; weft may not have one.
allowed=()
dpkg-deb --contents weft_*.deb | grep share/man >/dev/null || allowed=(--suppress-tags no-manual-page)
lintian --fail-on error,warning --allow-root "${allowed[@]}" weft_*.changes >lintian.log 2>&1 ||
    fail "lintian has complaints" lintian.log
wait $clean || fail "the clean root cannot be made" root.log

version=$("$folder/weft/obj-$(dpkg-architecture -qDEB_HOST_GNU_TYPE)/tools/weft" --version)
mkdir "$root/packages"
cp libweft0_*.deb libweft-dev_*.deb weft_*.deb weft-doc_*.deb "$root/packages"
awk '/^```c$/ { on = 1; next } /^```$/ { if (on) exit } on' "$source/README.md" >"$root/packages/first.c"
cat >"$root/packages/use" <<'USE'
set -e
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
cd /packages
apt-get update
apt-get install -y --no-install-recommends ./*.deb gcc libc6-dev man-db pkg-config
echo "== use"
cc first.c $(pkg-config --cflags --libs weft) -o first
./first
weft --version
weft plan transformer
for page in /usr/share/man/man1/weft*; do
    [ ! -e "$page" ] || man -w "$(basename "$page" .1.gz)"
done
ls /usr/share/doc/weft /usr/share/doc/weft-doc
apt-get purge -y weft weft-doc libweft-dev libweft0
[ ! -e /usr/bin/weft ] && [ ! -e /usr/include/weft ]
USE
unshare --mount bash -c "mount -t proc proc '$root/proc' && chroot '$root' bash /packages/use" >use.log 2>&1 ||
    fail "they cannot be used in a clean root" use.log
sed -n '/^== use/,$p' use.log >used.log
grep -q '^loss of XOR after 200 steps: 0\.0' used.log || fail "README's program printed something else" used.log
grep -qx "$version" used.log || fail "the installed program is not of version $version" used.log
grep -q 'arena' used.log || fail "the installed program prints no plan" used.log
ls ./*.deb
grep -E '^loss of XOR|^weft [0-9]' used.log
