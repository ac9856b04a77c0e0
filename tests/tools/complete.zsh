# Prints what zsh offers for the last word of a command line, one a line: drives a shell in a
# terminal of its own, whose compadd records the matches.
# Usage: zsh -f complete.zsh FOLDER_OF__weft "COMMAND LINE"
zmodload zsh/zpty
setup=$(mktemp)
cat >$setup <<EOF
PS1=; fpath=(${(q)1} \$fpath); autoload -Uz compinit; compinit -D -u
compadd() {
    local -a found; local suffix=''; local at=\${@[(I)-S]}
    (( at )) && suffix=\${@[at+1]}
    if (( ! \${@[(I)-[OAD]]} )); then
        builtin compadd -O found "\$@"
        print -rl -- \${found/%/\$suffix} >>$setup.offers
    fi
    builtin compadd "\$@"
}
offer() { _main_complete; compstate[insert]=; compstate[list]=; print DONE >>$setup.offers }
zle -C offer complete-word offer
bindkey '^I' offer
print READY >$setup.offers
EOF
zpty shell zsh -f -i
zpty -w shell "source $setup"
for (( i = 0; i < 500; i++ )); do
    [[ -f $setup.offers ]] && break
    sleep 0.01
done
zpty -w -n shell "$2"$'\t'
for (( i = 0; i < 500; i++ )); do
    grep -q DONE $setup.offers && break
    sleep 0.01
done
sed '/^READY$/d; /^DONE$/d; s/ *$//; /^$/d' $setup.offers | sort -u
zpty -d shell
rm -f $setup $setup.offers
