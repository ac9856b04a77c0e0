#!/usr/bin/env bash
# weft logprob from outside: against weft train --validate and weft translate --nbest.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
make_run=$build/tests/make_run
sizes=(d_model=32 heads=2 d_ff=64)
quick=(--warmup 5 --measure=false)

# A language model, and one that copies words of one letter, which a small model learns in a moment.
prepare()
{
    head -n 200 "$data/train.en" >a.en
    sed -n 201,240p "$data/train.en" >v.en
    expect 0 "saved" "$weft" train gpt --text a.en --valid-text v.en --mode lines --lengths 48,128,200 --vocab 300 \
        --batch-tokens 512 --steps 10 "${quick[@]}" --out lm "${sizes[@]}" layers=2
    words 1500 1 >copy
    words 30 77 >new
    expect 0 "saved" "$weft" train --source copy --target copy --valid-source new --valid-target new --vocab 30 \
        --lengths 8 --batch-tokens 256 --warmup 20 --lr 1e-2 --steps 200 --measure=false --out copies \
        "${sizes[@]}" encoder_layers=1 decoder_layers=1 dropout=0
}

# quiet COMMAND...: its output without what it prints on standard error
quiet()
{
    "$@" 2>/dev/null
}

# as_validated: the total that weft logprob prints, as weft train --validate would print it
as_validated()
{
    sed 's/.*: \([0-9.]* nats a token\), .*, \([0-9.]* bits a character\)/validation loss \1, \2/'
}

# validated RUN: what weft train prints when it validates its best checkpoint
validated()
{
    quiet "$weft" train --out "$1" --validate "$1/best.safetensors"
}

case_the_total_is_what_weft_train_validates()
{
    "$weft" logprob lm <v.en >lines 2>total
    equal "the total is what weft train validates" "$(as_validated <total)" "$(validated lm)"
    equal "the text is printed again" "$(cut -f 3 lines)" "$(cat v.en)"
    # The mean is printed with three decimals: 0.0005, and 0.00001 for those of the lines.
    equal "the lines add up" "$(awk -F '\t' 'NR == FNR {s -= $1; n += $2; next}
        {d = s / n - $2; if (n != $1 || d * d > 0.00051 ^ 2) print s / n, n, $0}' \
        lines <(sed 's/.* \([0-9]*\) tokens: \([0-9.]*\) nats.*/\1\t\2/' total))" ""
}

case_batches_and_threads_change_no_digit()
{
    quiet "$weft" logprob lm <v.en >lines
    for way in "--batch 1 --threads 1" "--batch 5" "--batch 1000 --threads 2"; do
        # shellcheck disable=SC2086
        equal "$way changes no digit" "$(quiet "$weft" logprob lm $way <v.en)" "$(cat lines)"
    done
    equal "alone or among others" "$(sed -n 7p v.en | quiet "$weft" logprob lm)" "$(sed -n 7p lines)"
}

case_tokens_add_up_to_lines()
{
    quiet "$weft" logprob lm <v.en >lines
    quiet "$weft" logprob lm --tokens <v.en >tokens
    # Each token is printed with an error of up to 5e-7.
    equal "tokens add up to lines" "$(awk -F '\t' 'NR == FNR {s[$1] += $3; n[$1]++; next}
        {d = s[FNR] - $1; if (n[FNR] != $2 || d * d > (1e-6 * ($2 + 1)) ^ 2) print FNR, s[FNR], $1, n[FNR], $2}' \
        tokens lines)" ""
    equal "each line ends" "$(awk -F '\t' '$2 == "</s>"' tokens | wc -l)" 40
    equal "pieces are the text" "$(awk -F '\t' '$1 == 2 && $2 != "</s>" {printf "%s", $2}' tokens |
        sed 's/^▁//; s/▁/ /g')" "$(sed -n 2p v.en)"
}

case_lines_and_tokens_as_JSON()
{
    equal "as JSON" "$("$weft" logprob lm --json <v.en | sed -n 2p |
        sed 's/.*"tokens":\([0-9]*\),"text":"\(.*\)"}/\1 \2/')" \
        "$(quiet "$weft" logprob lm <v.en | sed -n 2p | cut -f 2,3 | tr '\t' ' ')"
    equal "tokens as JSON" "$(head -n 1 v.en | "$weft" logprob lm --tokens --json | sed -n '1s/,"log_prob".*//p')" \
        "{\"line\":1,\"token\":\"$(quiet "$weft" logprob lm --tokens <v.en | sed -n 1p | cut -f 2)\""
}

# `weft train` adds up batches in single precision.
case_the_total_as_JSON()
{
    "$weft" logprob lm --json <v.en >total
    quiet "$weft" train --out lm --json --validate lm/best.safetensors >validated
    equal "the total as JSON" \
        "$(sed -n '$s/.*"nats_per_token":\([0-9.]*\),.*"bits_per_character":\([0-9.]*\).*/\1 \2/p' total |
            awk '{printf "%.4f %.4f", $1, $2}')" \
        "$(sed -n '$s/.*"validation_loss":\([0-9.]*\),"bits_per_character":\([0-9.]*\).*/\1 \2/p' validated |
            awk '{printf "%.4f %.4f", $1, $2}')"
}

case_empty_lines_no_lines_and_lines_that_are_not_UTF8()
{
    equal "an empty line has an end" "$(printf '\n' | quiet "$weft" logprob lm | cut -f 2,3)" $'1\t'
    printf '\nGod.\ncaf\xe9\n' >odd
    input=odd expect 0 "2 of 3 lines are empty or not UTF-8; the total leaves them out" "$weft" logprob lm
    input=odd expect 0 "1 lines, 3 tokens" "$weft" logprob lm
    input=odd expect 0 '"text":null' "$weft" logprob lm --json
    equal "no lines" "$("$weft" logprob lm </dev/null 2>&1)" "0 lines, 0 tokens"
}

# A long line is read in windows as long as the model was trained on.
case_a_long_line_is_read_in_windows()
{
    tr '\n' ' ' <v.en >long
    input=long expect 0 "1 texts are longer than the 92 tokens that the model attends to" "$weft" logprob lm
    equal "windows in any batch" "$(quiet "$weft" logprob lm --batch 1 <long)" "$(quiet "$weft" logprob lm <long)"
    # Their first tokens are those of the text's beginning.
    equal "the first window" "$(quiet "$weft" logprob lm --tokens <long | head -n 35)" \
        "$(head -n 1 v.en | quiet "$weft" logprob lm --tokens | sed '/<.s>/d' | head -n 35)"
}

# Documents: a line of output for each.
case_documents()
{
    book=(train lstm --unit document --mode lines --truncate --lengths 400 --batch-tokens 400 --steps 2 "${quick[@]}"
        width=16 hidden=16)
    expect 0 "saved" "$weft" "${book[@]}" --text a.en --valid-text a.en --normalization identity --vocab 400 \
        --valid-batches 1 --out book
    printf 'one\r\ntwo\n\n\n\nthree\n' >units
    equal "units" "$(quiet "$weft" logprob book <units | cut -f 3)" $'one two\nthree'
    expect 0 "saved" "$weft" "${book[@]}" --text a.en --valid-text units --vocab-file book/vocab.model --out units-run
    equal "units are validated alike" "$("$weft" logprob units-run <units 2>&1 >/dev/null | as_validated)" \
        "$(validated units-run)"
}

case_pairs_are_validated_alike()
{
    "$weft" logprob copies --source new <new >lines 2>total
    equal "pairs are validated alike" \
        "$(sed 's/.*: \([0-9.]* nats a token\), .*/validation loss \1/' total)" "$(validated copies)"
    equal "pairs in any batch" "$(quiet "$weft" logprob copies --source new --batch 1 --threads 1 <new)" "$(cat lines)"
    gzip -c new >new.gz
    equal "sources in gzip" "$(quiet "$weft" logprob copies --source new.gz <new)" "$(cat lines)"
    printf 'a b\n\n\n' >blank
    equal "they have ends" "$(printf '\na\n\n' | quiet "$weft" logprob copies --source blank | cut -f 2,3)" $'1\t\n2\ta\n1\t'
}

case_hypotheses_have_the_log_probabilities_of_the_search()
{
    "$weft" translate copies --beam 4 --nbest 3 --length-penalty 0 <new >list
    quiet "$weft" logprob copies --nbest --source new <list >again
    equal "each hypothesis again" "$(sed 's/ ||| [^|]*$//' again)" "$(cat list)"
    # Both are printed with six decimals, 5e-7 each. The rest is rounding of f32 in logits near 10, one token at a time or
    # all at once: 6e-7 a rounding.
    equal "the search has other log probabilities" \
        "$(awk -F ' [|][|][|] ' '{d = $3 - $4; if (d > 1e-4 || d < -1e-4) print}' again)" ""
    [ "$(awk -F ' [|][|][|] ' '{n += $3 < -0.5} END {print n + 0}' again)" -ge 10 ] || fail "all hypotheses are certain"
    equal "a list in any order" "$(tac list | quiet "$weft" logprob copies --nbest --source new | tac)" "$(cat again)"
    equal "a list of a language model" "$(quiet "$weft" logprob lm --nbest <list | sed 's/ ||| [^|]*$//')" "$(cat list)"
}

case_sources_that_do_not_belong_to_the_texts()
{
    head -n 9 new >nine
    input=nine expect 1 "input: ends after 9 lines, but new continues" "$weft" logprob copies --source new
    input=new expect 1 "nine: ends after 9 lines, but input continues" "$weft" logprob copies --source nine
    input=new expect 1 "line 1 is not LINE ||| TEXT ||| SCORE" "$weft" logprob copies --nbest --source new
    echo "31 ||| a ||| 0" >far
    input=far expect 1 "line 1 names source line 31, but new has 30 lines" "$weft" logprob copies --nbest --source new
    input=new expect 1 "--source FILE is missing" "$weft" logprob copies
    input=new expect 1 "takes no --source" "$weft" logprob lm --source new
    input=new expect 1 "missing: cannot be opened" "$weft" logprob copies --source missing
}

case_options()
{
    expect 1 "no/such" "$weft" logprob lm --checkpoint no/such
    expect 2 "cannot be standard input" "$weft" logprob copies --source -
    expect 2 "--nbest and --tokens exclude each other" "$weft" logprob copies --nbest --tokens
    expect 2 "--batch must be a whole number" "$weft" logprob lm --batch 0
    expect 2 "FOLDER is missing" "$weft" logprob
    expect 0 "log probability" "$weft" logprob --help
}

case_models_that_predict_no_texts()
{
    mkdir bert vectors
    cp lm/vocab.model bert
    cp lm/vocab.model vectors
    "$make_run" bert/model.safetensors bert vocab=300 "${sizes[@]}" layers=1 || fail "no bert"
    "$make_run" vectors/model.safetensors encoder || fail "no encoder"
    expect 1 "predicts masked tokens" "$weft" logprob bert
    expect 1 "is a model of vectors" "$weft" logprob vectors
}

case_lines_longer_than_learned_positions()
{
    mkdir short
    cp lm/vocab.model short
    "$make_run" short/model.safetensors transformer vocab=300 d_model=16 heads=2 d_ff=16 encoder_layers=1 \
        decoder_layers=1 positions=learned max_positions=20 source_len=20 target_len=20 || fail "no transformer"
    head -n 1 v.en >one
    echo "God." >god
    input=one expect 1 "input: line 1 has " "$weft" logprob short --source god
    input=god expect 1 "but transformer has only 20 learned positions" "$weft" logprob short --source one
}

case_a_full_disk()
{
    [ -w /dev/full ] || skip "there is no /dev/full"
    full()
    {
        "$weft" logprob lm <v.en >/dev/full
    }
    expect 1 "output: No space left" full
}

run_cases
