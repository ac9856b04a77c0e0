#!/usr/bin/env bash
# Hugging Face models in the program: convert, run, and back.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
golden=$tests/golden/huggingface

# Models that many cases use.
prepare()
{
    local model
    for model in gpt2 llama marian; do
        expect 0 "saved in $model" "$weft" convert "$golden/$model" -o $model
    done
}

# inputs_of MODEL: sets `inputs` to the arguments of `run` that give it the recorded inputs.
inputs_of()
{
    local file
    inputs=()
    for file in "$golden/$1"/inputs/*.npy; do
        inputs+=(--input "$(basename "$file" .npy)=$file")
    done
}

# as_recorded MODEL RUN: the run computes from MODEL's recorded inputs what transformers did, in f64. In f32, weft rounds
# some 300 times by 6e-8 of numbers near 1: 2e-5.
as_recorded()
{
    local file inputs
    inputs_of "$1"
    "$weft" run "$2" "${inputs[@]}" --out "$2-out" >out 2>&1 || { fail "run $2"; cat out; }
    for file in "$golden/$1"/outputs/*.npy; do
        [ -f "$2-out/$(basename "$file")" ] || fail "$2 has no $(basename "$file")"
    done
    expect 0 "equals the reference" "$weft" run "$2" "${inputs[@]}" --check "$golden/$1/outputs" \
        --rtol 1e-5 --atol 2e-5
}

# same_tensors FILE FILE: two checkpoints with the same tensors.
same_tensors()
{
    python3 - "$1" "$2" <<'P'
import json, sys
def read(path):
    data = open(path, "rb").read()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__")
    return {k: (v["dtype"], v["shape"], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
            for k, v in header.items()}
sys.exit(read(sys.argv[1]) != read(sys.argv[2]))
P
}

# Every model: its outputs are those of transformers, and what goes back is read again as the same.
case_every_model_there_and_back()
{
    local folder name context
    for folder in "$golden"/*/; do
        name=$(basename "$folder")
        context=()
        [ "$name" != phi3-long ] || context=(--context 7) # of its recorded texts
        "$weft" convert "$folder" "${context[@]}" -o "$name-new" >out 2>&1 || { fail "convert $name"; cat out; continue; }
        grep -q "parameters in .* tensors, saved in $name-new" out || fail "what convert $name prints"
        as_recorded "$name" "$name-new"
        "$weft" convert "$name-new" -o "$name-back" >out 2>&1 || { fail "convert $name back"; cat out; }
        "$weft" convert "$name-back" "${context[@]}" -o "$name-again" >out 2>&1 || { fail "convert $name again"; cat out; }
        same_tensors "$name-new/model.safetensors" "$name-again/model.safetensors" || fail "$name has other tensors"
        as_recorded "$name" "$name-again"
        cmp -s "$name-new-out/hidden.npy" "$name-again-out/hidden.npy" || fail "$name: other bits when read again"
    done
}

case_the_same_bits_at_any_number_of_threads()
{
    local threads
    for threads in 1 2; do
        "$weft" run llama --input target_in="$golden/llama/inputs/target_in.npy" --threads $threads \
            --out threads$threads >out || fail "run llama on $threads threads"
    done
    diff -r threads1 threads2 || fail "outputs at 1 and 2 threads differ"
}

# Sizes without arrays; inputs that do not fit.
case_sizes_and_inputs()
{
    expect 0 "logits  f32 [3, 5, 59]" "$weft" run gpt2 --random --dim batch=3 --dim length=5
    expect 0 "logits  f32 [2, 4, 47]" "$weft" run marian --random --dim batch=2 --dim source_len=3 --dim target_len=4
    expect 0 "GFLOP" "$weft" run llama --random --outputs hidden --out only
    "$weft" run llama --random --out all >out || fail "run llama"
    equal "only what was asked for" "$(ls only)" hidden.npy
    cmp only/hidden.npy all/hidden.npy || fail "--outputs changes an output"
    expect 1 '"hiden" is not an output of the model' "$weft" run llama --random --outputs hiden
    expect 1 "names an output twice" "$weft" run llama --random --outputs hidden,hidden,hidden
    expect 1 'gpt: has no size "rows"' "$weft" run gpt2 --random --dim rows=3
    expect 1 "target_in: is not given" "$weft" run gpt2
    expect 1 "is not an input of the model" "$weft" run gpt2 --input target_in="$golden/gpt2/inputs/target_in.npy" \
        --input source="$golden/marian/inputs/source.npy"
    expect 1 "none: has no NAME.npy of an output" "$weft" run gpt2 --random --check none
    expect 1 "max_positions is 16" "$weft" run gpt2 --random --dim length=17
    expect 1 "is neither a checkpoint nor a folder with a model.safetensors" "$weft" run "$work" --random
}

# A run of `weft train`, and its checkpoints, can be converted to transformers' format.
case_a_run_of_train()
{
    local run
    words 60 1 >text
    "$weft" train gpt --text text --valid-text text d_model=16 heads=2 d_ff=32 layers=1 max_positions=64 \
        --vocab 30 --steps 2 --measure=false --out own >out 2>&1 || { fail "train"; tail -3 out; }
    expect 0 "saved in own-hf" "$weft" convert own -o own-hf
    grep -q '"GPT2LMHeadModel"' own-hf/config.json || fail "own-hf/config.json has another architecture"
    expect 0 "saved in own-file" "$weft" convert own/model.safetensors -o own-file
    expect 0 "gpt vocab=29" "$weft" convert own-hf -o own-again
    for run in own own-again; do
        "$weft" run $run --random --dim length=9 --out $run-out >out || fail "run $run"
    done
    cmp own-out/logits.npy own-again-out/logits.npy || fail "own and own-again have other logits"
}

# A GGUF file with the weights of a folder becomes a run with the same tensors; one with a vocabulary has a tokeniser.
case_gguf()
{
    expect 0 "without a tokeniser: the vocabulary: has no tokenizer.ggml.model" "$weft" convert "$tests/golden/gguf/llama.gguf" -o gguf
    same_tensors gguf/model.safetensors llama/model.safetensors || fail "gguf has other tensors than llama"
    [ ! -e gguf/tokenizer.json ] || fail "gguf has a tokeniser"
    as_recorded llama gguf
    expect 0 "saved in gguf-back" "$weft" convert gguf -o gguf-back
    grep -q '"LlamaForCausalLM"' gguf-back/config.json || fail "gguf-back/config.json has another architecture"
    expect 1 "has no text general.architecture" "$weft" convert "$tests/fuzz/corpus/gguf/no-architecture" -o new
    expect 1 "has the architecture \"none\", which weft does not read" "$weft" convert "$tests/golden/gguf/types.gguf" -o new
    head -c 5000 "$tests/golden/gguf/llama.gguf" >cut.gguf
    expect 1 "has 5856 bytes, but the file only 5000" "$weft" convert cut.gguf -o new
    expect 0 "saved in gguf-words" "$weft" convert "$tests/fuzz/corpus/gguf/words" -o gguf-words
    grep -q '"<s>":0' gguf-words/tokenizer.json || fail "gguf-words/tokenizer.json has no <s>"
    grep -q '"bos_token": "<s>"' gguf-words/tokenizer_config.json || fail "gguf-words has no bos_token"
    [ ! -e new ] || fail "a failed conversion left a folder"
}

# A run becomes a GGUF file, with its tokeniser, and that becomes a run with the same files.
case_gguf_out()
{
    local file
    expect 0 "without a tokeniser: llama has no tokenizer.json" "$weft" convert llama --to gguf -o llama.gguf
    expect 0 "saved in llama-again" "$weft" convert llama.gguf -o llama-again
    same_tensors llama-again/model.safetensors llama/model.safetensors || fail "llama-again has other tensors than llama"
    expect 0 "saved in words" "$weft" convert "$tests/fuzz/corpus/gguf/words" -o words
    expect 0 "saved in words.gguf" "$weft" convert words --to gguf --type f16 -o words.gguf
    expect 0 "saved in words-again" "$weft" convert words.gguf -o words-again
    for file in tokenizer.json tokenizer_config.json; do
        cmp words/$file words-again/$file || fail "words-again has another $file"
    done
    expect 0 "saved in file.gguf" "$weft" convert words/model.safetensors --to gguf -o file.gguf
    cmp -s file.gguf words.gguf && fail "words.gguf is not in f16"
    echo "{}" >words/tokenizer.json
    expect 1 "tokenizer.json: its model is unknown; weft writes BPE to GGUF files" "$weft" convert words --to gguf -o new
    expect 0 "saved in bert-run" "$weft" convert "$golden/bert" -o bert-run
    expect 1 "bert: is not a language model" "$weft" convert bert-run --to gguf -o new
    expect 1 "llama.gguf: exists already: choose another -o" "$weft" convert llama --to gguf -o llama.gguf
    expect 1 "is not a run; convert it to a run first" "$weft" convert llama.gguf --to gguf -o new
    expect 1 "cannot be written" "$weft" convert llama --to gguf -o none/new
    expect 2 "--type is for --to gguf" "$weft" convert llama --type f16 -o new
    expect 2 "type must be one of same|f32|f16|bf16|q8_0|q4_0|q4_1, not \"q2\"" "$weft" convert llama --to gguf --type q2 -o new
    [ ! -e new ] || fail "a failed conversion left a file"
}

# What says how a model reads and writes text goes along, in both directions.
case_the_files_of_text_go_along()
{
    local file files="tokenizer.json tokenizer_config.json special_tokens_map.json generation_config.json
        chat_template.jinja modules.json sentence_bert_config.json 1_Pooling/config.json"
    cp -r "$golden/bert-encoder" texts && mkdir texts/1_Pooling texts/2_Normalize
    for file in $files; do
        echo "{\"$file\": 1}" >texts/$file
    done
    echo '[{"path": ""}, {"path": "1_Pooling"}, {"path": "2_Normalize"}, {"path": "../texts"}, {"path": 3}]' >texts/modules.json
    expect 0 "saved in texts-run" "$weft" convert texts -o texts-run
    expect 0 "saved in texts-back" "$weft" convert texts-run -o texts-back
    expect 0 "saved in texts-file" "$weft" convert texts-run/model.safetensors -o texts-file
    for file in $files; do
        for folder in texts-run texts-back texts-file; do
            cmp texts/$file $folder/$file || fail "$folder has no $file"
        done
    done
    echo '[' >texts/modules.json
    expect 1 "texts/modules.json: is not JSON" "$weft" convert texts -o texts-bad
}

case_architectures()
{
    expect 0 "LlamaForCausalLM" "$weft" convert --list
    expect 1 "config.json names the one that is read" "$weft" convert "$golden/gpt2" -o new --architecture OPTForCausalLM
    expect 1 "GPT2LMHeadModel, which is a gpt" "$weft" convert llama -o new --architecture GPT2LMHeadModel
    expect 1 "unsupported architecture" "$weft" convert llama -o new --architecture Nothing
    [ ! -e new ] || fail "a failed conversion left a folder"
}

case_errors_are_one_line()
{
    expect 0 "saved in gpt2-back" "$weft" convert gpt2 -o gpt2-back
    expect 1 "has a model already: choose another -o" "$weft" convert "$golden/gpt2" -o gpt2
    expect 1 "has a model already: choose another -o" "$weft" convert gpt2 -o gpt2-back
    expect 1 "is neither a checkpoint" "$weft" convert "$work" -o new
    expect 1 "cannot be made" "$weft" convert "$golden/gpt2" -o none/new
    expect 2 "expected DIR, FILE.gguf or RUN, and -o" "$weft" convert gpt2
    expect 2 "only one DIR, FILE.gguf or RUN can be given" "$weft" convert a b -o c
    mkdir bad && cp "$golden/gpt2/config.json" bad
    expect 1 "has neither model.safetensors nor" "$weft" convert bad -o new
    head -c 5000 "$golden/gpt2/model.safetensors" >bad/model.safetensors
    expect 1 "bad/model.safetensors" "$weft" convert bad -o new
    [ ! -e new ] || fail "a failed conversion left a folder"
}

run_cases
