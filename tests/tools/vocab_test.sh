#!/usr/bin/env bash
# weft vocab from outside: making, showing, encoding, decoding, and what is refused.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
small=(d_model=8 heads=1 --steps 1 --batch-tokens 64 --lengths 32 --measure=false)

# A vocabulary of one language, one of both that a run has, one for masks and one of characters.
prepare()
{
    head -n 300 "$data/train.en" >a.en
    head -n 300 "$data/train.es" >a.es
    expect 0 "making a vocabulary of 300 pieces (bpe)" "$weft" vocab train a.es -o one.model --size 300
    expect 0 "finished" "$weft" train --source a.en --target a.es --vocab 400 --vocab-type unigram \
        encoder_layers=1 decoder_layers=1 "${small[@]}" --out pairs
    expect 0 "" "$weft" vocab train a.en -o masked.model --size 400 --mask --normalization identity
    expect 0 "short.model: the text has only 7 pieces, not 100" \
        "$weft" vocab train <(echo abab) -o short.model --size 100 --type char
}

# clean TEXT COMMAND...: it fails with this text, and names no source file of SentencePiece.
clean()
{
    expect 1 "$@"
    shift
    "$@" 2>&1 </dev/null | grep -F '.cc(' && fail "$* names a source file"
}

# refuses LINES MESSAGE ARGUMENT...: what weft vocab says of lines from standard input
refuses()
{
    printf '%s\n' "$1" >lines
    input=lines expect 1 "weft: standard input: line $2" "$weft" vocab "${@:3}"
}

# nothing_made FILE: a failure leaves no such file.
nothing_made()
{
    [ ! -e "$1" ] || fail "$1 is written after a failure"
}

# same_text PIECES VOCABULARY...: encoding and decoding, as ids or with --pieces, change no text.
same_text()
{
    local pieces=$1 vocabulary
    shift
    for vocabulary; do
        # shellcheck disable=SC2086
        "$weft" vocab encode "$vocabulary" $pieces <a.en >encoded || fail "encode $vocabulary $pieces"
        # shellcheck disable=SC2086
        "$weft" vocab decode "$vocabulary" $pieces <encoded >decoded || fail "decode $vocabulary $pieces"
        cmp a.en decoded || fail "$vocabulary: another text comes back"
    done
}

case_usage()
{
    expect 0 "Usage: weft vocab train" "$weft" vocab train --help
    expect 2 "name a subcommand: train, encode, decode or show" "$weft" vocab
    expect 2 'unknown subcommand "make"' "$weft" vocab make a.en
    expect 2 "unrecognized option" "$weft" vocab show --no-such-option
    expect 2 "FILE or RUN is missing" "$weft" vocab encode
    expect 2 "only one FILE or RUN can be given" "$weft" vocab encode pairs one.model
}

case_a_vocabulary_is_that_of_weft_train()
{
    expect 0 "finished" "$weft" train gpt --text a.es --vocab 300 layers=1 "${small[@]}" --out gpt
    cmp one.model gpt/vocab.model || fail "not the vocabulary of weft train"
}

case_a_vocabulary_of_two_texts_is_that_of_weft_train()
{
    expect 0 "" "$weft" vocab train a.en a.es -o two.model --size 400 --type unigram
    cmp two.model pairs/vocab.model || fail "not the vocabulary of two texts of weft train"
}

case_a_masked_vocabulary_is_that_of_weft_train()
{
    expect 0 "finished" "$weft" train bert --text a.en --vocab 400 --normalization identity layers=1 \
        "${small[@]}" --out bert
    cmp masked.model bert/vocab.model || fail "not the masked vocabulary of weft train"
}

case_weft_train_takes_a_vocabulary_as_it_is()
{
    expect 0 "finished" "$weft" train gpt --text a.es --vocab-file one.model layers=1 "${small[@]}" --out given
    cmp one.model given/vocab.model || fail "the vocabulary that was given is changed"
}

case_texts_from_a_pipe_and_from_gzip()
{
    input=a.es expect 0 "" "$weft" vocab train - -o piped.model --size 300
    cmp one.model piped.model || fail "another vocabulary from standard input"
    gzip -k a.es
    expect 0 "" "$weft" vocab train a.es.gz -o unzipped.model --size 300
    cmp one.model unzipped.model || fail "another vocabulary from gzip"
}

case_only_force_replaces_a_vocabulary()
{
    before=$(cksum one.model)
    expect 1 "one.model: exists already: --force replaces it" "$weft" vocab train a.en -o one.model --size 300
    [ "$before" = "$(cksum one.model)" ] || fail "a vocabulary is replaced without --force"
    cp one.model forced.model
    expect 0 "" "$weft" vocab train a.en -o forced.model --force --size 300
    cmp -s one.model forced.model && fail "--force replaces nothing"
}

case_train_refuses_options_and_files()
{
    expect 2 "-o FILE.model is missing" "$weft" vocab train a.en
    expect 2 "--type must be one of bpe|unigram|char, not \"word\"" "$weft" vocab train a.en -o x --type word
    expect 2 "--normalization must be one of" "$weft" vocab train a.en -o x --normalization nfd
    expect 2 "--size must be a whole number from 10" "$weft" vocab train a.en -o x --size 5
    expect 2 "one TEXT only" "$weft" vocab train - - -o x
    expect 1 "missing: cannot be opened" "$weft" vocab train missing -o x
    expect 1 "/no/x: cannot be written" "$weft" vocab train a.en -o /no/x --size 300
    nothing_made x
}

case_lines_that_are_not_UTF8_and_long_lines()
{
    { printf 'a\xff\n'; head -c 5000 /dev/zero | tr '\0' a; echo; cat a.en; } >odd
    expect 0 "of 302 lines 1 are not UTF-8 (left out), 1 longer than 4192" \
        "$weft" vocab train odd -o odd.model --size 300
}

case_failures_of_SentencePiece_name_none_of_its_sources()
{
    clean "weft: vocabulary: 20 pieces are too few: the text needs" "$weft" vocab train a.en -o x --size 20
    for type in bpe unigram char; do
        clean "the text has no character to learn from" "$weft" vocab train <(printf ' \n\t\n\n') -o x --type "$type"
    done
    clean "the text has no character to learn from" "$weft" vocab train /dev/null -o x
    nothing_made x
    nothing_made none
}

case_files_that_are_not_vocabularies()
{
    mkdir damaged folder
    echo "no model" >damaged/vocab.model
    clean "weft: damaged/vocab.model: is not a SentencePiece model" "$weft" vocab show damaged
    clean "weft: a.en: is not a SentencePiece model" "$weft" vocab show a.en
    cp pairs/model.safetensors damaged
    clean "weft: damaged/vocab.model: is not the vocabulary that damaged/model.safetensors was trained with" \
        "$weft" translate damaged
    clean "weft: /dev/null: cannot be opened: not a regular file" "$weft" vocab show /dev/null
    clean "weft: folder/vocab.model: cannot be opened: No such file" "$weft" vocab show folder
    mkdir folder/vocab.model
    clean "weft: folder/vocab.model: cannot be opened: Is a directory" "$weft" vocab show folder
}

case_ids_decode_to_the_same_text()
{
    same_text "" pairs masked.model
    # The vocabulary of one language lacks letters of the other.
    "$weft" vocab encode one.model <a.en >encoded || fail "encode one.model"
}

case_pieces_decode_to_the_same_text()
{
    same_text --pieces pairs masked.model
    "$weft" vocab encode one.model --pieces <a.en >encoded || fail "encode one.model --pieces"
}

case_ids_and_pieces_of_a_word()
{
    echo the >word
    input=word expect 0 "▁the" "$weft" vocab encode pairs --pieces
    ids=$("$weft" vocab encode pairs <<<"God said")
    grep -qxE '[0-9]+( [0-9]+)*' <<<"$ids" || fail "no ids: $ids"
    echo "2 $ids 3 0" >with_specials
    input=with_specials expect 0 "God said" "$weft" vocab decode pairs
}

case_empty_lines_tabs_and_line_ends_in_pieces()
{
    printf 'a\n\nb\n' >gap
    [ "$("$weft" vocab encode pairs <gap | "$weft" vocab decode pairs | wc -l)" -eq 3 ] || fail "an empty line is lost"
    [ "$(printf 'a\tb' | "$weft" vocab encode masked.model | "$weft" vocab decode masked.model)" = "$(printf 'a\tb')" ] ||
        fail "a tab is lost"
    [ "$(echo '<0x0A> <0x41>' | "$weft" vocab decode masked.model --pieces)" = " A" ] || fail "a line's end in a piece"
}

case_ids_and_pieces_that_are_refused()
{
    refuses $'4 5\n6 400' "2: id 400 is not in [0, 400)" decode pairs
    refuses '-1' "1: id -1 is not in" decode pairs
    refuses $'4\n5x' '2: "5x" is not an id' decode pairs
    refuses '99999999999999999999' "1: id 99999999999999999999 is not in" decode pairs
    refuses '▁the nonsense' '1: "nonsense" is not a piece' decode pairs --pieces
    refuses $'good\na\xff' "2: is not UTF-8" encode pairs
}

case_a_full_disk()
{
    [ -w /dev/full ] || skip "there is no /dev/full"
    "$weft" vocab encode pairs <a.en 2>log >/dev/full && fail "a full disk is not an error"
    grep -q "cannot be written" log || fail "a full disk: $(cat log)"
}

case_show_names_type_normalization_and_special_pieces()
{
    expect 0 "pieces        400 (256 of them bytes)" "$weft" vocab show masked.model
    expect 0 "type          bpe" "$weft" vocab show one.model
    expect 0 "type          unigram" "$weft" vocab show pairs
    expect 0 "type          char" "$weft" vocab show short.model
    expect 0 "normalization identity" "$weft" vocab show masked.model
    expect 0 "normalization nmt_nfkc" "$weft" vocab show one.model
    expect 0 "mask          4 <mask>" "$weft" vocab show masked.model
    expect 0 "mask          none" "$weft" vocab show one.model
    expect 0 "end           3 </s>" "$weft" vocab show one.model
}

case_show_lists_all_pieces()
{
    [ "$("$weft" vocab show one.model --all | wc -l)" -eq 300 ] || fail "not every piece is shown"
    expect 0 "2 <s>" "$weft" vocab show one.model --all
    expect 0 '"pieces":	300' "$weft" vocab show one.model --json
    expect 0 '"list":	["<pad>", "<unk>"' "$weft" vocab show one.model --all --json
}

case_a_run_with_two_vocabularies()
{
    mkdir apart
    cp one.model apart/vocab.source.model
    cp one.model apart/vocab.target.model
    expect 1 "apart: has two vocabularies" "$weft" vocab show apart
}

run_cases
