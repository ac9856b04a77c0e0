#!/usr/bin/env bash
# tools/release on a copy of the repository: the same bytes twice, a list of hashes that is signed by a
# key of the test's own, a tree that meson sets up, and what is refused.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
export GNUPGHOME=$work/keys GIT_AUTHOR_NAME=test GIT_AUTHOR_EMAIL=test GIT_COMMITTER_NAME=test GIT_COMMITTER_EMAIL=test
archive=

# The files as they are, committed, so that the test needs no clean checkout: `tree`. A release of it with a
# signature, `one`, and later one without, `two`.
prepare()
{
    local command
    for command in git gpg xz; do command -v $command >/dev/null || skip "$command is not installed"; done
    git -c safe.directory="$root" -C "$root" rev-parse HEAD >/dev/null 2>&1 ||
        skip "this is not a checkout of the repository"
    mkdir -m 700 keys
    mkdir tree one two
    (cd "$root" && git -c safe.directory="$root" ls-files -co --exclude-standard -z | while IFS= read -r -d '' file; do
        [ -e "$file" ] && printf '%s\0' "$file"
    done | tar -c --null -T - | tar -x -C "$work/tree")
    git -C tree init --quiet && git -C tree add --all && git -C tree commit --quiet --message "the tree" ||
        fail "the files cannot be committed"
    gpg --batch --quiet --passphrase '' --quick-generate-key 'weft test <test@weft.example>' ed25519 sign never ||
        fail "no key"
    tree/tools/release --output one --key test@weft.example >output 2>&1 || fail "$(cat output)"
    sleep 1.1 # the clock moves on
    expect 0 'not signed' tree/tools/release --output two
    archive=$(cd one && echo weft-*.tar.xz)
    gpgconf --kill all # its sockets are not copied; a case starts it again
}

# verify: whether the list of hashes has a good signature
verify()
{
    trap 'gpgconf --kill all' EXIT
    gpg --quiet --verify one/SHA256SUMS.asc one/SHA256SUMS 2>/dev/null
}

case_two_releases_of_a_commit_have_the_same_bytes()
{
    cmp "one/$archive" "two/$archive" || fail "two releases of one commit differ"
}

case_hashes_and_their_signature()
{
    [ ! -e two/SHA256SUMS.asc ] || fail "there is a signature without a key"
    (cd one && sha256sum --quiet --check SHA256SUMS) || fail "the hash is wrong"
    verify || fail "the signature is wrong"
    echo "tampered" >>one/SHA256SUMS
    verify && fail "a changed list has a good signature"
}

case_meson_sets_up_the_tree_of_the_tarball()
{
    local tree=${archive%.tar.xz}
    tar -xf "two/$archive"
    equal "the number of files in the tarball" "$(find "$tree" -type f | wc -l)" "$(cd tree && git ls-files | wc -l)"
    meson setup "$tree/build" "$tree" >output 2>&1 || { fail "meson cannot set the tarball's tree up"; tail -n 20 output; }
    grep -q "Project version: ${tree#weft-}$" output || fail "the version in the tarball is not that of its name"
}

case_what_is_refused()
{
    expect 1 "tools/release: $root/none is not a folder" tree/tools/release --output "$root/none"
    expect 1 "GnuPG cannot sign by nobody" tree/tools/release --output one --key nobody
    expect 2 "--key needs a value" tree/tools/release --key
    expect 2 "Usage: tools/release" tree/tools/release --none
}

case_trees_that_are_not_released()
{
    echo >tree/new
    expect 1 "changes that are not committed" tree/tools/release --output one
    rm tree/new
    sed -i "s/^  version: '.*',/  version: '987.0.0',/" tree/meson.build
    git -C tree commit --quiet --all --message "another version"
    expect 1 "CHANGELOG.md says nothing of 987.0.0" tree/tools/release --output one
}

run_cases
