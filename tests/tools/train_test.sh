#!/usr/bin/env bash
# Training from outside: texts, every kind of model, refused options, bits a character, histograms, less memory, bf16,
# and the line of progress on a terminal.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
files=(--source train.en --target train.es --valid-source valid.en --valid-target valid.es)
small=(d_model=16 heads=2 d_ff=32 --vocab 300 --batch-tokens 256 --warmup 5 --measure=false)
pair=("$weft" train "${files[@]}" "${small[@]}" encoder_layers=1 decoder_layers=1)
text=("$weft" train --text train.en --valid-text valid.en "${small[@]}")

# Texts, a language model, and a run of pairs with a checkpoint every two steps.
prepare()
{
    for l in en es; do
        head -n 300 "$data/train.$l" >"train.$l"
        head -n 40 "$data/valid.$l" >"valid.$l"
    done
    expect 0 "finished after 12" "${text[@]}" gpt layers=1 --out gpt --steps 12
    expect 0 "finished after 6" "${pair[@]}" --steps 6 --save-every 2 --out plain
}

# refused MESSAGE COMMAND...: what cannot be trained is refused before anything is made.
refused()
{
    local message=$1
    shift
    expect 1 "$message" "$@" --out refused --steps 1
    [ ! -e refused ] || fail "something was made before it was refused: $message"
    rm -rf refused
}

# bits_of FILE RATIO: of the bits a character to the bits a token, in every line of metrics that has them.
# Both are printed in full, and the ratios below are rounded to ten digits.
bits_of()
{
    awk 'match($0, /"validation_loss":[0-9.]+/) {
        nll = substr($0, RSTART + 18, RLENGTH - 18)
        if (!match($0, /"bits_per_character":[0-9.]+/)) exit 1
        bits = substr($0, RSTART + 21, RLENGTH - 21)
        ratio = bits * log(2) / nll
        if (ratio < '"$2"' - 1e-8 || ratio > '"$2"' + 1e-8) { print ratio; exit 1 }
        found++
    } END { if (!found) exit 1 }' "$1" || fail "bits a character in $1"
}

# tensors FILE: the sum of a checkpoint without its metadata
tensors()
{
    python3 -c 'import hashlib, sys
b = open(sys.argv[1], "rb").read()
print(hashlib.sha256(b[8 + int.from_bytes(b[:8], "little"):]).hexdigest())' "$1"
}

case_odd_texts()
{
    { printf '\xEF\xBB\xBFone\r\n\r\nthree \xC3\x28\nfour\r\n'; cat train.en; } >odd.en
    { printf 'uno\r\ndos\r\ntres\ncuatro\r\n'; cat train.es; } >odd.es
    odd=("$weft" train "${small[@]}" encoder_layers=1 decoder_layers=1 --valid-source valid.en --valid-target valid.es)
    expect 0 "304 pairs" "${odd[@]}" --source odd.en --target odd.es --out odd --steps 1
    expect 0 "left out: 1 empty, 1 not UTF-8" "${odd[@]}" --source odd.en --target odd.es --out odd2 --steps 1
}

case_long_pairs_are_left_out_or_cut()
{
    expect 0 "over 40 tokens; cut: 0" "${pair[@]}" --lengths 16,40 --out long --steps 1
    expect 0 "0 over 40 tokens; cut: " "${pair[@]}" --lengths 16,40 --truncate --out cut --steps 1
    expect 1 "are longer" "${pair[@]}" --lengths 3 --out none --steps 1
}

# Long lines are read in pieces: what only they have is in the vocabulary.
case_long_lines_are_read_in_pieces()
{
    { head -c 9000 /dev/zero | tr '\0' '['; printf ' x%.0s' {1..3000}; printf '\xC3\xA9%.0s' {1..4000}; echo; } >long.txt
    printf '[[[[\xC3\xA9\xC3\xA9\n' >rare
    "$weft" train gpt "${small[@]}" layers=1 --text long.txt --valid-text rare --vocab-type char --vocab 20 --steps 1 \
        --lengths 16 --out long-run >log 2>&1 || fail "a text of long lines: $(tail -n 1 log)"
    grep -q "of 1 lines 0 are not UTF-8 (left out), 1 longer than 4192 bytes (read in pieces)" log ||
        fail "no count of long lines"
    grep -q "rare: 1 lines, 8 target tokens" log || fail "what only long lines have is unknown: $(grep rare: log)"
}

# A vocabulary of documents keeps line ends, tabs and runs of blanks, and a model says them.
case_documents()
{
    document='ab\n\tc  d\n[e] \xE2\x98\x83\n\n'
    # shellcheck disable=SC2059
    for _ in {1..40}; do printf "$document"; done >documents
    "$weft" train gpt "${small[@]}" layers=1 length=32 --text documents --unit document --normalization identity \
        --vocab 280 --batch-tokens 256 --lr 1e-2 --warmup 10 --steps 150 --out few >log 2>&1 ||
        fail "documents: $(tail -n 1 log)"
    grep -q "documents: 40 documents," log || fail "no number of documents: $(grep documents: log)"
    "$weft" generate few --prompt ab --temperature 0 --tokens 40 >log
    # shellcheck disable=SC2059
    printf "$document" | cmp - log || fail "a document is said otherwise: $(cat -A log)"
    "$weft" generate few --prompt $'ab\n\tc ' --temperature 0 --tokens 40 >log
    # shellcheck disable=SC2059
    printf "$document" | cmp - log || fail "a prompt that ends with a blank: $(cat -A log)"
    expect 1 "pairs are lines" "${pair[@]}" --unit document --out few-pairs --steps 1
}

case_kinds_of_models()
{
    expect 0 "finished after 4" "${text[@]}" gpt layers=1 --mode lines --vocab-type char --lengths 64,256 --out chars \
        --steps 4
    expect 0 "finished after 4" "${text[@]}" bert layers=1 --out bert --steps 4
    expect 0 "finished after 4" "$weft" train "${files[@]}" seq2seq width=16 hidden=16 layers=1 \
        --lengths 8,16 --truncate --vocab 300 --measure=false --out s2s --steps 4
    expect 0 "finished after 4" "${pair[@]}" --lr 0 --schedule inverse-sqrt --accumulate 2 --out paper --steps 4
}

case_vocabularies_that_are_given()
{
    expect 0 "finished after 4" "${text[@]}" llama kv_heads=1 layers=1 --vocab-file gpt/vocab.model --out llama --steps 4
    cmp gpt/vocab.model llama/vocab.model || fail "a vocabulary given is not the one used"
    expect 1 "has no piece <mask>" "${text[@]}" bert layers=1 --vocab-file gpt/vocab.model --out bert2 --steps 4
    expect 1 "vocab=900 cannot be chosen here: the vocabulary has 300 pieces" "${text[@]}" gpt vocab=900 \
        --out small --steps 1
    refused "no-such: cannot be read" "${text[@]}" gpt --vocab-file no-such
    expect 0 "the text has" "${text[@]}" gpt layers=1 --vocab-type char --lengths 256 --out small-vocab --steps 1
}

case_a_vocabulary_for_each_language()
{
    expect 0 "finished after 4" "${pair[@]}" --shared-vocab=false tied=0 --out apart --steps 4
    for side in source target; do
        [ -s apart/vocab.$side.model ] || fail "no vocabulary of the $side"
    done
    expect 1 "tied=0" "${pair[@]}" --shared-vocab=false --out bad --steps 1
}

case_options_of_the_model_that_are_refused()
{
    refused "batch=4 cannot be chosen here: --batch-tokens" "${pair[@]}" batch=4
    refused "source_len=9 cannot be chosen here: --lengths" "${pair[@]}" source_len=9
    refused "pad_id=7 cannot be chosen here: id 0" "${pair[@]}" pad_id=7
    refused "length=9 cannot be chosen here: --lengths" "${text[@]}" gpt --lengths 12 length=9
    refused "length=9 cannot be chosen here: --lengths" "${text[@]}" bert length=9
    refused "has 10 positions (max_positions), rows have up to 12 tokens" "${text[@]}" gpt --lengths 12 max_positions=10
    refused "must divide d_model (7 heads" "${text[@]}" gpt heads=7
}

case_options_that_are_refused()
{
    expect 2 "must be a number from 0 to 100" "$weft" train --lr fast
    expect 2 'no model "gtp"' "$weft" train gtp
    expect 1 "not a model of tokens" "$weft" train attention --text train.en --out bad
    expect 1 "is above its peak, 1e-09 (--floor)" "${pair[@]}" --lr 1e-9 --out bad --steps 1
    expect 1 "needs batches of masked lines" "${text[@]}" bert layers=1 --mode blocks --out bert3
    refused "no-such: cannot be read" "$weft" train gpt --text train.en --valid-text no-such
    refused "--momentum has no effect: the optimizer is not sgd or rmsprop" "${pair[@]}" --momentum 0.9
    refused "--nesterov has no effect" "${pair[@]}" --optimizer sgd --nesterov
    refused "--text has no effect: the model is trained on pairs" "${pair[@]}" --text train.en
    refused "--source has no effect" "${text[@]}" gpt --source train.en
    refused "--mask-share has no effect" "${text[@]}" gpt --mask-share 0.5
    expect 2 'f32|bf16' "${pair[@]}" --precision f16 --out never
    expect 1 'run.memory: "much" is not a number of bytes' "${pair[@]}" --memory much --out never
    expect 1 "the arena would take" "${pair[@]}" --memory 1K --out never
}

case_the_memory_of_a_training_is_printed()
{
    expect 0 "million parameters; memory: " "${text[@]}" gpt layers=1 --out roomy --steps 1
}

# What has no room is refused with the numbers, before anything is made.
case_a_model_without_room_is_refused()
{
    case $(nm -D "$weft" 2>/dev/null) in
        *__asan_init*) skip "the address sanitizer needs more memory than the limit" ;;
    esac
    with_limit()
    {
        (ulimit -v 4000000 && exec "$@")
    }
    refused "million parameters need" with_limit "${text[@]}" gpt d_model=4096 d_ff=16384 layers=8
}

# Nats a token, by tokens and by code points with one for each line's end.
case_bits_a_character()
{
    printf 'ab\r\na\xC3\xB1b\n\nbaab\n' >few
    expect 0 '"checkpoint"' "$weft" train --text few --valid-text few gpt "${small[@]}" layers=1 length=4 \
        --vocab-type char --batch-tokens 8 --valid-every 1 --steps 2 --json --out few-run
    # A token a character, one for the space that SentencePiece puts first, one for the end: 15 of 12.
    bits_of few-run/metrics.jsonl 1.25
    expect 0 "nats a token, " "$weft" train --out few-run --validate few-run/best.safetensors
    expect 0 " bits a character" "$weft" train --out few-run --validate few-run/best.safetensors
    printf 'ab\naab\nabababab\n' >lines.txt
    lines=("$weft" train gpt "${small[@]}" layers=1 --text few --valid-text lines.txt --vocab-file few-run/vocab.model
        --mode lines --lengths 6 --batch-tokens 12 --steps 1)
    expect 0 "1 over 6 tokens" "${lines[@]}" --out few-lines
    bits_of few-lines/metrics.jsonl 1.285714286 # 9 tokens, 7 characters: the long line has no row
    expect 0 "(best" "${lines[@]}" --out few-cut --truncate
    grep -q bits_per_character few-cut/metrics.jsonl && fail "bits a character of lines that were cut"
}

# What normalisation drops or joins is not said, and does not count: 9 characters, not 11.
case_bits_a_character_of_normalised_text()
{
    printf 'a  b\t c \n\xEF\xAC\x81\n' >blanks
    "$weft" train gpt "${small[@]}" layers=1 --text blanks --valid-text blanks --vocab-type char --vocab 20 --mode lines \
        --batch-tokens 32 --steps 1 --lengths 16 --out few-blanks >log 2>&1
    grep -q "blanks: 2 lines, 11 target tokens" log || fail "tokens of blanks: $(tail -n 1 log)"
    bits_of few-blanks/metrics.jsonl 1.222222222
}

case_histograms_change_no_training()
{
    expect 0 "finished after 6" "${pair[@]}" --steps 6 --save-every 2 --histograms 2 --out seen
    equal "histograms change the training" "$(tensors seen/model.safetensors)" "$(tensors plain/model.safetensors)"
    python3 - seen/histograms.jsonl <<'EOF_PYTHON' || fail "the histograms are wrong"
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert sorted({line["step"] for line in lines}) == [2, 4, 6], lines[0]
names = {kind: [line["name"] for line in lines if line["kind"] == kind] for kind in ("weight", "gradient")}
assert names["weight"] == names["gradient"] and len(names["weight"]) > 9
for line in lines:
    assert len(line["counts"]) == 32 and sum(line["counts"]) > 0 and line["low"] <= line["mean"] <= line["high"]
    assert max(-line["low"], line["high"]) >= line["rms"] >= 0
EOF_PYTHON
}

hashes_of() { sed -n 's/.*"step":\([0-9]*\),"parameters":"\([0-9a-f]*\)".*/\1 \2/p' "$1/metrics.jsonl"; }

# They are the same for any number of threads and after a resumption, and they change with the parameters.
case_hashes_of_the_parameters()
{
    expect 0 "finished after 6" "${pair[@]}" --steps 6 --hash-every 2 --out hashed
    expect 0 "finished after 6" "${pair[@]}" --steps 6 --hash-every 2 --threads 1 --out hashed-1
    equal "the hashes of one thread" "$(hashes_of hashed-1)" "$(hashes_of hashed)"
    [ "$(hashes_of hashed | cut -d ' ' -f 1 | tr '\n' ' ')" = "2 4 6 " ] || fail "steps of hashes: $(hashes_of hashed)"
    [ "$(hashes_of hashed | cut -d ' ' -f 2 | sort -u | wc -l)" = 3 ] || fail "the hash does not change: $(hashes_of hashed)"
    expect 0 "finished after 6" "${pair[@]}" --steps 6 --hash-every 2 --save-every 4 --keep 1 --out resumed
    cp resumed/step-4.safetensors resumed/model.safetensors
    expect 0 "finished after 6" "$weft" train --resume --out resumed
    equal "the hashes of a resumed run" "$(hashes_of resumed)" "$(hashes_of hashed)"
    expect 1 "run.hash_every: needs whole parameters" "${pair[@]}" --steps 6 --hash-every 2 --zero 3 --out refused
}

# A resumed run continues the file, without lines after its checkpoint.
case_histograms_of_a_resumed_run()
{
    expect 0 "finished after 4" "${pair[@]}" --steps 4 --save-every 2 --histograms 2 --out seen
    cp seen/histograms.jsonl seen.4
    printf '{"step":9,"name":"later"}\n{"step":4,"na' >>seen/histograms.jsonl
    expect 0 "finished after 4" "$weft" train --resume --out seen
    cmp -s seen/histograms.jsonl seen.4 || fail "lines of later steps remain in the histograms"
}

# bf16: another training, whose checkpoints have f32 and can be used as any.
case_bf16_and_a_budget_of_memory()
{
    expect 0 "precision=bf16" "${pair[@]}" --precision bf16 --steps 6 --save-every 2 --out narrow
    expect 0 "finished after 6" "${pair[@]}" --precision bf16 --memory 1G --threads 1 --steps 6 --out narrow-again
    equal "threads or a budget of memory change a training in bf16" "$(tensors narrow/model.safetensors)" \
        "$(tensors narrow-again/model.safetensors)"
    [ "$(tensors narrow/model.safetensors)" != "$(tensors plain/model.safetensors)" ] || fail "bf16 changes nothing"
    expect 0 "validation loss" "$weft" train --out narrow --validate narrow/best.safetensors
}

case_a_line_of_progress_on_a_terminal()
{
    command -v script >/dev/null || skip "script(1) is not installed"
    script -qec "${pair[*]} --steps 5 --out terminal" /dev/null >log </dev/null
    grep -q $'\r\033\\[Kstep 5 .*left' log || fail "no line that updates itself on a terminal: $(cat -v log)"
}

case_no_escapes_without_a_terminal()
{
    "${pair[@]}" --steps 3 --out quiet >log 2>&1 || fail "a run of three steps"
    [ "$(grep -c $'\r' log)" -eq 0 ] || fail "escapes without a terminal"
}

run_cases
