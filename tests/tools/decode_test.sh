#!/usr/bin/env bash
# weft translate from outside: searches, samples, caches, lengths, alignments, vocabularies and refused options.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
make_run=$build/tests/make_run
make_vocabulary=$build/tests/make_vocabulary
sizes=(d_model=32 heads=2 d_ff=64)

# A run, and eleven lines to translate: the tenth is empty.
prepare()
{
    head -n 300 "$data/train.en" >a.en
    head -n 300 "$data/train.es" >a.es
    { sed -n 301,309p "$data/train.en"; echo; echo "God."; } >in
    expect 0 "saved" "$weft" train --source a.en --target a.es --valid-source a.en --valid-target a.es --vocab 400 \
        --batch-tokens 256 --warmup 5 --steps 10 --out run "${sizes[@]}" encoder_layers=1 decoder_layers=1
}

# translate OPTION...: the lines of `in` by the run
translate()
{
    "$weft" translate run "$@" <in
}

# seq2seq ATTENTION: a folder of that name with a recurrent model of random parameters
seq2seq()
{
    mkdir "$1"
    cp run/vocab.model "$1"
    "$make_run" "$1/model.safetensors" seq2seq vocab=400 width=16 hidden=16 attention="$1" || fail "no seq2seq"
}

# bad_pairs FILE SOURCES TEXTS: how many lines of FILE are not pairs of words that are there, J ascending
bad_pairs()
{
    paste -d '|' "$1" "$2" "$3" | awk -F '|' '{
        bad = $1 !~ /^([0-9]+-[0-9]+( [0-9]+-[0-9]+)*)?$/
        n = split($1, pair, " "); last = -1
        for (k = 1; k <= n; k++) {
            split(pair[k], of, "-")
            if (of[1] + 0 >= split($2, words, " ") || of[2] + 0 >= split($3, words, " ") || of[2] + 0 <= last) bad = 1
            last = of[2] + 0
        }
        wrong += bad
    } END {print wrong + 0}'
}

case_a_line_for_each_line()
{
    greedy=$(translate)
    equal "a line out for each line in" "$(wc -l <<<"$greedy")" 11
    equal "the empty line stays empty" "$(sed -n 10p <<<"$greedy")" ""
    input=in expect 0 "tokens/s" "$weft" translate run --stats
}

case_a_beam_of_one_is_greedy()
{
    equal "a beam of one is greedy" "$(translate --beam 1 --batch 3 --threads 1)" "$(translate)"
}

case_caches_and_chunks_change_nothing()
{
    greedy=$(translate)
    equal "caches change nothing" "$(translate --recompute)" "$greedy"
    equal "nor do chunks" "$(translate --chunk 2)" "$greedy"
}

case_caches_of_fewer_bits()
{
    for cache in bf16 u8; do
        equal "keys and values of $cache" "$(translate --cache $cache | wc -l)" 11
        equal "the same at any number of threads" "$(translate --beam 2 --cache $cache --threads 1 --batch 3)" \
            "$(translate --beam 2 --cache $cache)"
    done
    expect 2 "--cache must be one of f32|bf16|u8, not \"f16\"" "$weft" translate run --cache f16
    expect 2 "--cache has no effect with --recompute" "$weft" translate run --recompute --cache u8
}

case_beams_and_lists_of_the_best()
{
    beam=$(translate --beam 3 --length-penalty 1)
    equal "beams in batches" "$(translate --beam 3 --length-penalty 1 --batch 2 --threads 1)" "$beam"
    best=$(translate --beam 3 --length-penalty 1 --nbest 3)
    equal "three for each line that is not empty" "$(wc -l <<<"$best")" 30
    equal "the best first" "$(awk -F ' [|][|][|] ' '$1 != l {print $2} {l = $1}' <<<"$best")" "$(grep . <<<"$beam")"
}

case_samples_depend_on_the_seed_only()
{
    sample=(--sample --seed 5 --top-k 50 --top-p 0.9 --temperature 0.8)
    drawn=$(translate "${sample[@]}")
    equal "a seed's text" "$(translate "${sample[@]}" --batch 2 --threads 1)" "$drawn"
    [ "$(translate "${sample[@]}" --seed 6)" != "$drawn" ] || fail "another seed's text is the same"
}

case_lengths()
{
    input=in expect 0 "had more than 8 tokens and were cut" "$weft" translate run --max-source 8
    equal "at most three tokens" "$(translate --max-length 3 | awk 'NF > 3' | wc -l)" 0
    found=$(echo "God." | "$weft" translate run --min-length 40 --stats 2>&1 |
        sed -n 's/.* lines, \([0-9]*\) tokens.*/\1/p')
    [ "$found" -ge 40 ] || fail "--min-length is not kept"
    expect 2 "must be below --max-length" "$weft" translate run --min-length 9 --max-length 9
}

case_odd_lines()
{
    equal "a carriage return within a line is white space" \
        "$(printf 'In the\rbeginning\r\nGod.' | "$weft" translate run)" \
        "$(printf 'In the beginning\nGod.\n' | "$weft" translate run)"
    printf 'caf\xE9\nGod.\n' >latin1
    input=latin1 expect 0 "not UTF-8 (invalid bytes were read as unknown): line 1" "$weft" translate run
}

case_repetition_penalties()
{
    equal "a beam with a large repetition penalty repeats nothing" \
        "$(translate --beam 3 --nbest 3 --max-length 30 --repetition-penalty 1e6)" \
        "$(translate --beam 3 --nbest 3 --max-length 30 --no-repeat 1)"
    equal "a repetition penalty of 1 is none" "$(translate --repetition-penalty 1)" "$(translate)"
    expect 2 "--repetition-penalty must be a number" "$weft" translate run --repetition-penalty 0
}

case_options_that_are_refused()
{
    expect 2 "--sample and --beam exclude each other" "$weft" translate run --sample --beam 2
    expect 2 "need --sample" "$weft" translate run --top-k 3
    expect 2 "is larger than --beam" "$weft" translate run --beam 2 --nbest 3
    expect 2 "--beam must be a whole number" "$weft" translate run --beam none
    expect 2 "--stop must be one of first|bound" "$weft" translate run --stop never
    expect 1 "no/such" "$weft" translate run --checkpoint no/such
}

case_the_best_checkpoint_is_taken()
{
    greedy=$(translate)
    cp run/model.safetensors run/best.safetensors
    head -c 500 run/best.safetensors >run/model.safetensors
    equal "the best checkpoint is taken" "$(translate)" "$greedy"
    expect 1 "model.safetensors" "$weft" translate run --checkpoint run/model.safetensors
}

case_recurrent_models()
{
    for attention in none additive dot general; do
        seq2seq $attention
        lines=$("$weft" translate $attention --beam 2 --max-length 12 <in)
        equal "a line for each source" "$(wc -l <<<"$lines")" 11
        equal "without states" "$("$weft" translate $attention --beam 2 --max-length 12 --batch 2 --recompute <in)" \
            "$lines"
    done
}

# What only the vocabulary of the source has is never said.
case_two_vocabularies_of_unequal_size()
{
    head -n 60 a.en >few.en
    head -n 60 a.es >few.es
    expect 0 "saved" "$weft" train --source few.es --target few.en --valid-source few.es --valid-target few.en \
        --vocab 200 --vocab-type char --shared-vocab=false --lengths 512 --truncate --batch-tokens 1024 --steps 1 \
        --measure=false --out apart d_model=16 heads=2 d_ff=32 encoder_layers=1 decoder_layers=1 tied=0
    text=$(echo "God." | LC_ALL=C.UTF-8 "$weft" translate apart --sample --temperature 1e6 --min-length 79 \
        --max-length 80 2>/dev/null | LC_ALL=C.UTF-8 wc -m)
    # A token is a character; the space at the beginning is left out.
    [ "$text" -ge 80 ] || fail "of 80 characters $text came out"
}

# A vocabulary that can say any byte: a line for each line all the same.
case_a_vocabulary_of_bytes()
{
    mkdir bytes
    "$make_vocabulary" a.en bytes/vocab.model || fail "no vocabulary"
    "$make_run" bytes/model.safetensors transformer vocab=400 "${sizes[@]}" encoder_layers=1 decoder_layers=1 ||
        fail "no transformer"
    "$weft" translate bytes --sample --temperature 1e6 --min-length 199 --max-length 200 --nbest 2 <in >said
    equal "two lines for each source, whatever is said" \
        "$(grep -c '^[0-9]* [|][|][|] .* [|][|][|] -[0-9.]*$' said)" 20
    equal "no others" "$(wc -l <said)" 20
    equal "no control bytes besides line ends" "$(LC_ALL=C tr -d -c '\000-\010\013-\037\177' <said | wc -c)" 0
}

case_alignments_are_pairs_of_words()
{
    translate --alignments pairs >out
    equal "alignments change no translation" "$(cat out)" "$(translate)"
    equal "a line of pairs for each line" "$(wc -l <pairs)" 11
    equal "none for an empty line" "$(sed -n 10p pairs)" ""
    equal "pairs of words" "$(bad_pairs pairs in out)" 0
    [ "$(wc -w <pairs)" -ge 9 ] || fail "$(wc -w <pairs) pairs only"
    seq2seq additive
    "$weft" translate additive --alignments pairs --max-length 12 <in >out
    equal "pairs of the words of a recurrent model" "$(bad_pairs pairs in out) $(wc -l <pairs)" "0 11"
}

case_alignments_in_batches_by_heads_and_of_beams()
{
    translate --alignments pairs >out
    translate --alignments pairs2 --batch 3 --threads 1 --chunk 2 >out
    cmp pairs pairs2 || fail "alignments depend on the batch"
    translate --alignments pairs2 --head 1 >out
    cmp -s pairs pairs2 && fail "--head changes no alignment"
    translate --alignments pairs --beam 3 >out
    translate --alignments pairs2 --beam 3 --nbest 3 >out
    cmp pairs pairs2 || fail "alignments are not those of the best"
}

case_alignments_that_are_refused()
{
    input=in expect 1 "no such layer" "$weft" translate run --alignments pairs --layer 7
    input=in expect 1 "no such head" "$weft" translate run --alignments pairs --head 7
    seq2seq none
    input=in expect 1 "no such layer" "$weft" translate none --alignments pairs
    input=in expect 1 "no/pairs: cannot be written: No such file" "$weft" translate run --alignments no/pairs
    input=in expect 2 "standard output has the translations" "$weft" translate run --alignments -
}

case_a_full_disk()
{
    [ -w /dev/full ] || skip "there is no /dev/full"
    input=in expect 1 "/dev/full: cannot be written" "$weft" translate run --alignments /dev/full
}

# A model that copies words attends to the word that it copies.
case_copies_are_aligned_one_to_one()
{
    words 2000 1 >copy
    words 50 77 >new
    expect 0 "saved" "$weft" train --source copy --target copy --vocab 30 --lengths 8 --batch-tokens 256 --warmup 20 \
        --lr 1e-2 --steps 300 --measure=false --out copies "${sizes[@]}" encoder_layers=1 decoder_layers=1 dropout=0
    "$weft" translate copies --alignments pairs <new >out
    right=$(paste -d '|' pairs new out | awk -F '|' '$2 == $3 {
        words += split($2, w, " "); n = split($1, pair, " ")
        for (k = 1; k <= n; k++) { split(pair[k], of, "-"); same += of[1] == of[2] }
    } END {print (words >= 200 && same >= 0.9 * words) ? "yes" : same " of " words}')
    equal "copies are aligned one to one" "$right" yes
    printf '  a   b\t c \n\n d  e f g\n' >blanks
    "$weft" translate copies --alignments pairs <blanks >out
    equal "copies of odd blanks" "$(cat out)" $'a b c\n\nd e f g'
    equal "words are what blanks separate" "$(cat pairs)" $'0-0 1-1 2-2\n\n0-0 1-1 2-2 3-3'
}

run_cases
