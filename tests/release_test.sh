#!/usr/bin/env bash
# tools/release on a copy of the repository: the same bytes twice, a list of hashes that is signed by a
# key of the test's own, a tree that meson sets up, and what is refused.
set -euo pipefail
source=$(realpath "$(dirname "$0")/..")
for command in git gpg xz; do
    command -v $command >/dev/null || { echo "skipped: source releases: $command is not installed"; exit 0; }
done
git -c safe.directory="$source" -C "$source" rev-parse HEAD >/dev/null 2>&1 ||
    { echo "skipped: source releases: this is not a checkout of the repository"; exit 0; }
work=$(mktemp -d)
export GNUPGHOME=$work/keys GIT_AUTHOR_NAME=test GIT_AUTHOR_EMAIL=test GIT_COMMITTER_NAME=test GIT_COMMITTER_EMAIL=test
trap 'gpgconf --kill all; rm -rf "$work"' EXIT
cd "$work"
fail()
{
    echo "source releases: $*"
    exit 1
}
# refused TEXT COMMAND...: the command must fail with that text.
refused()
{
    local text=$1
    shift
    if "$@" >output 2>&1; then fail "$* succeeds"; fi
    grep -qF -e "$text" output || fail "$* printed '$(cat output)', not '$text'"
}

# The files as they are, committed, so that the test needs no clean checkout.
mkdir -m 700 keys
mkdir tree one two
(cd "$source" && git -c safe.directory="$source" ls-files -co --exclude-standard -z | while IFS= read -r -d '' file; do
    [ -e "$file" ] && printf '%s\0' "$file"
done | tar -c --null -T - | tar -x -C "$work/tree")
git -C tree init --quiet
git -C tree add --all
git -C tree commit --quiet --message "the tree"

gpg --batch --quiet --passphrase '' --quick-generate-key 'weft test <test@weft.example>' ed25519 sign never
tree/tools/release --output one --key test@weft.example >output 2>&1 || fail "$(cat output)"
sleep 1.1 # the clock moves on
tree/tools/release --output two >output
grep -q 'not signed' output || fail "a release without a key does not say that it is not signed"
archive=$(cd one && echo weft-*.tar.xz)
cmp "one/$archive" "two/$archive" || fail "two releases of one commit differ"
[ ! -e two/SHA256SUMS.asc ] || fail "there is a signature without a key"
(cd one && sha256sum --quiet --check SHA256SUMS && gpg --quiet --verify SHA256SUMS.asc SHA256SUMS 2>/dev/null) ||
    fail "the hash or the signature is wrong"
echo "tampered" >>one/SHA256SUMS
if gpg --quiet --verify one/SHA256SUMS.asc one/SHA256SUMS 2>/dev/null; then fail "a changed list has a good signature"; fi

tar -xf "two/$archive"
tree=${archive%.tar.xz}
[ "$(cd tree && git ls-files | wc -l)" = "$(find "$tree" -type f | wc -l)" ] || fail "the tarball lacks files"
meson setup "$tree/build" "$tree" >output 2>&1 || { tail -n 20 output; fail "meson cannot set the tarball's tree up"; }
grep -q "Project version: ${tree#weft-}$" output || fail "the tarball has another version than its name"

refused "tools/release: $source/none is no folder" tree/tools/release --output "$source/none"
refused "GnuPG cannot sign by nobody" tree/tools/release --output one --key nobody
refused "--key needs a value" tree/tools/release --key
refused "Usage: tools/release" tree/tools/release --none
echo >tree/new
refused "changes that are not committed" tree/tools/release --output one
rm tree/new
sed -i "s/^  version: '.*',/  version: '987.0.0',/" tree/meson.build
git -C tree commit --quiet --all --message "another version"
refused "CHANGELOG.md says nothing of 987.0.0" tree/tools/release --output one
echo "$archive: $(du -h "two/$archive" | cut -f1), reproducible, signed, set up by meson"
