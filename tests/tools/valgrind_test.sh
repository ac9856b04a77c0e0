#!/usr/bin/env bash
# Commands under valgrind, which watches libraries that the sanitizers do not instrument: nothing is read after it
# was freed or before it was written, and nothing is lost.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
# valgrind does not support AVX-512.
export WEFT_ISA=v3 OPENBLAS_CORETYPE=Haswell OMP_NUM_THREADS=2

prepare()
{
    command -v valgrind >/dev/null || skip "valgrind is not installed"
    head -n 60 "$data/train.en" >a.en
    head -n 60 "$data/train.es" >a.es
    expect 0 "saved" "$weft" train --source a.en --target a.es --valid-source a.en --valid-target a.es --vocab 300 \
        --batch-tokens 128 --steps 2 --measure=false --out run d_model=16 heads=2 d_ff=16 encoder_layers=1 \
        decoder_layers=1
}

# clean TEXT COMMAND...: valgrind finds nothing, and the command prints TEXT.
clean()
{
    local text=$1
    shift
    expect 0 "$text" valgrind --quiet --error-exitcode=9 --leak-check=full --show-leak-kinds=definite \
        --errors-for-leak-kinds=definite "$@"
}

case_checking_an_op()
{
    clean "ok" "$weft" check --op softmax
}

case_translating_with_alignments()
{
    head -n 2 a.en >in
    input=in clean "" "$weft" translate run --alignments pairs --max-length 8
    input=in clean "" "$weft" translate run --beam 2 --max-length 4 --chunk 1
}

case_training()
{
    clean "finished after 3" "$weft" train --resume --out run --steps 3 --valid-bleu 1
}

case_vocabularies()
{
    clean "" "$weft" vocab show run/vocab.model
    input=a.en clean "" "$weft" vocab encode run/vocab.model
    input=a.en clean "" "$weft" vocab train a.en --size 200 -o made.model
}

case_graphs_and_plans()
{
    clean "" "$weft" dot gpt layers=1 d_model=16 d_ff=16 -o graph.dot
    clean "proved optimal" "$weft" plan gpt layers=1 d_model=16 d_ff=16 --train
}

run_cases
