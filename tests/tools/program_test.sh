#!/usr/bin/env bash
# The program from outside: exit statuses, messages, JSON, what it says of ops, models, plans and profiles, a small
# training run from corpus to translation, resuming, SIGINT.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
small=(transformer vocab=50 d_model=16 heads=2 d_ff=32 encoder_layers=1 decoder_layers=1 batch=2)
train=("$weft" train --source a.en --target a.es --valid-source a.en --valid-target a.es --vocab 500
    --batch-tokens 256 --warmup 5 d_model=32 heads=2 d_ff=64 encoder_layers=1 decoder_layers=1)

prepare()
{
    head -n 400 "$data/train.en" >a.en
    head -n 400 "$data/train.es" >a.es
    mkdir lists
}

# command_names: those that the usage lists, one a line
command_names()
{
    "$weft" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'
}

# model_names: one a line
model_names()
{
    "$weft" models --json | sed -n 's/^\t*"name":\t"\(.*\)",$/\1/p'
}

# bad_list TEXT MESSAGE: the list as printf would write it, what is said about it
bad_list()
{
    # shellcheck disable=SC2059
    printf "$1" >lists/bad.csv
    expect 1 "bad.csv: $2" "$weft" plan --instances lists
    expect 1 "bad.csv: $2" "$weft" plan --instances lists --json
}

case_usage()
{
    expect 2 "Usage: weft" "$weft"
    expect 0 "Usage: weft" "$weft" --help
    "$weft" -h 2>&1 >help | grep . && fail "weft -h prints on standard error"
    cmp help <("$weft" --help) || fail "weft -h is not weft --help"
    expect 0 "-h " "$weft" vocab train -h
    expect 1 "cannot be opened" "$weft" score -- -h a # a file by that name
}

case_every_command_has_help()
{
    mapfile -t commands < <(command_names)
    [ ${#commands[@]} -ge 22 ] || fail "the usage lists ${#commands[@]} commands only"
    for command in "${commands[@]}"; do
        expect 0 "Usage: weft $command" "$weft" "$command" --help
        "$weft" "$command" -h >help 2>errors || fail "weft $command -h is an error"
        cmp help <("$weft" "$command" --help) || fail "$command -h is not --help"
        [ ! -s errors ] || fail "$command -h prints on standard error"
        expect 2 "unrecognized option" "$weft" "$command" --no-such-option
    done
}

case_help_has_the_layout_of_GNU_programs()
{
    cat >expected <<-'END'
		Usage: weft info [OPTION...]
		Prints what weft uses on this machine: the instruction set of its kernels
		(WEFT_ISA limits it), the backend of matrix products (WEFT_GEMM), threads
		(OMP_NUM_THREADS), caches, and the libraries that could be loaded.

		  -j, --json                 print JSON
		  -?, --help                 Give this help list
		  -h                         The same as --help
		      --usage                Give a short usage message
		  -V, --version              Print program version
	END
    diff expected <("$weft" info --help) || fail "another layout of --help"
    for command in $(command_names); do
        "$weft" "$command" --help >help && "$weft" "$command" --usage >>help || fail "$command --usage"
        grep -E '^.{80,}$' help && fail "$command: a line of more than 79 columns"
        grep -n ' $' help && fail "$command: a line ends with a blank"
    done
    # Groups are in order, options sorted, and headings follow empty lines.
    "$weft" check --help | sed -n 's/^ \(Of.*\)/\1/p; s/^  .\{4\}\(--[a-z]*\).*/\1/p; s/^$/|/p' | tr '\n' ' ' >order
    equal "another order" "$(cat order)" \
        "| --bits --json --op --threads | Of FILE.onnx: --batch --constant --dim | --help --usage --version | "
}

case_words_of_the_command_line()
{
    "$weft" plan transformer --train batch=2 --json >one || fail "options between arguments"
    "$weft" plan --js --train -- transformer batch=2 | grep -v seconds >two || fail "an abbreviation, or --"
    diff <(grep -v seconds one) two || fail "the order of words matters"
    equal "-V" "$("$weft" score -lV)" "$("$weft" --version)"
    "$weft" dot gpt -oone.dot && "$weft" dot gpt -o two.dot && "$weft" dot gpt --output three.dot || fail "-o"
    cmp one.dot two.dot && cmp one.dot three.dot || fail "another file"
    expect 2 "weft score: option '--se=3' is ambiguous; possibilities: '--sentences' '--seed'" "$weft" score --se=3
    expect 2 "weft ops: option '--json' doesn't allow an argument" "$weft" ops --json=1
    expect 2 "weft check: option '--op' requires an argument" "$weft" check --op
    expect 2 "weft average: option requires an argument -- 'o'" "$weft" average -o
    expect 2 "weft score: invalid option -- 'Z'" "$weft" score -lZ
    expect 2 "weft ops: Too many arguments" "$weft" ops x
    expect 2 "weft average: --output expects FILE" "$weft" average --output=
    expect 2 'no model "--help"' "$weft" check -- --help
    expect 2 "Try \`weft vocab train --help' or \`weft vocab train --usage' for more information." "$weft" vocab train -Z
}

case_wrong_names_get_a_suggestion()
{
    expect 2 'no command "nonsense"' "$weft" nonsense
    expect 2 'did you mean "train"?' "$weft" trian
    expect 2 'no model "transfomer" (see `weft models`); did you mean "transformer"?' "$weft" plan transfomer
    expect 1 'has no option "drpoout"; did you mean "dropout"?' "$weft" plan transformer drpoout=0
    expect 2 "unrecognized option '--resme'; did you mean '--resume'?" "$weft" train --resme
    expect 2 "unrecognized option '--bem'; did you mean '--beam'?" "$weft" generate --prompt --resme --bem 3 run
    expect 1 "WEFT_ISA: \"avx2\" is an unknown instruction set; expected base, v3, v4, v4_bf16 or v4_amx" \
        env WEFT_ISA=avx2 "$weft" plan gpt
}

case_ops_and_models_are_listed()
{
    expect 0 '"name":	"matmul"' "$weft" ops --json
    expect 0 "layer_norm" "$weft" ops
    expect 0 "parameters" "$weft" models
    equal "weft models and weft models --json list other models" "$(model_names | wc -l)" \
        "$("$weft" models | grep -c '^[a-z].*parameters$')"
    equal "weft models and weft models gpt count other parameters" "$("$weft" models gpt | sed -n '2s/ .*//p')" \
        "$("$weft" models | sed -n 's/^gpt: .*; \(.*\) parameters/\1/p')"
}

case_a_model_names_its_commands()
{
    expect 0 "commands: dot, plan, profile, bench, check, export, train, generate" "$weft" models gpt
    expect 0 "commands: dot, plan, profile, bench, check, export, train, translate" "$weft" models seq2seq
    expect 0 "commands: dot, plan, profile, bench, check, export, fit" "$weft" models resnet
    expect 0 "export, train (a masked language model)" "$weft" models bert
    expect 0 '"masked":	true' "$weft" models bert --json
    "$weft" models attention --json | grep -q '"train"' && fail "a model of vectors is trained on text"
    expect 2 'no model "none"' "$weft" models none
    expect 2 "one model at a time" "$weft" models gpt lstm
}

case_a_model_names_its_options()
{
    expect 0 "    d_model            512          width" "$weft" models attention
    expect 0 "(none|sinusoidal|learned|sinusoidal-halves)" "$weft" models gpt
    expect 0 '"choices":	["none", "additive", "dot", "general"]' "$weft" models seq2seq --json
    expect 0 '"kind":	"flag"' "$weft" models gpt --json
}

case_options_of_models_are_checked()
{
    expect 2 'no model "none"' "$weft" plan none
    expect 1 'no option "colour"' "$weft" plan transformer colour=3
    expect 1 'invalid heads "2.5"; expected a whole number' "$weft" plan transformer heads=2.5
    expect 1 "weft: gpt: invalid f64=2; expected 0 or 1" "$weft" plan gpt f64=2
    expect 1 "must divide d_model" "$weft" plan transformer heads=7
}

case_models_that_are_too_large_are_refused_at_once()
{
    expect 1 "at most 1000" timeout 60 "$weft" plan gpt heads=7 layers=1000000000
    expect 1 "must divide d_model" timeout 60 "$weft" plan gpt heads=7 layers=1000
    expect 1 "the graph has 1048576 nodes" timeout 60 "$weft" plan seq2seq target_len=1000000 batch=1
}

case_summaries_of_models()
{
    expect 0 "updates " "$weft" models transformer --summary --train --depth 1 encoder_layers=1
    expect 2 "need --summary" "$weft" models transformer encoder_layers=1
}

case_plans()
{
    expect 0 '"ratio"' "$weft" plan transformer --train --json
    expect 0 "proved optimal" "$weft" plan transformer
}

case_every_model_is_planned()
{
    for model in $(model_names); do
        expect 0 "arena" "$weft" plan "$model"
        expect 0 "arena" "$weft" plan "$model" --train
    done
}

# What a pass changes.
case_plans_with_and_without_a_pass()
{
    "$weft" plan gpt --train --before-after fuse | grep -Eq "^fused +0 +[1-9]" ||
        fail "--before-after fuse shows no fused nodes"
    expect 0 '"without":' "$weft" plan gpt --before-after fuse --json
    expect 0 "(the rest)" "$weft" profile gpt --before-after fuse --runs 2 --rows 3
    expect 1 'unknown optional pass "fuze"' "$weft" plan gpt --before-after fuze
    expect 1 'unknown optional pass "fuze"' "$weft" profile gpt --before-after fuze
}

case_lists_of_buffers_are_planned()
{
    printf 'size,id,upper,lower\r\n3,a,5,0\r\n\r\n4,b,9,5\n' >lists/two.4.csv
    expect 0 "two.4.csv                 2            4            4            4  1.000000  yes" \
        "$weft" plan --instances lists
    expect 0 '"fits":	true' "$weft" plan --instances lists --json --seconds 5
    mv lists/two.4.csv lists/two.3.csv
    expect 1 "  no " "$weft" plan --instances lists
    expect 1 '"fits":	false' "$weft" plan --instances lists --json
}

case_options_of_lists()
{
    expect 1 "has no .csv files" "$weft" plan --instances lists
    expect 1 "none: cannot be read" "$weft" plan --instances none
    expect 2 "--instances excludes a model" "$weft" plan --instances lists transformer
    expect 2 "needs --instances" "$weft" plan --seconds 3 transformer
    expect 2 "--seconds must be a number" "$weft" plan --instances lists --seconds 3x
}

case_damaged_lists()
{
    bad_list '' 'empty'
    bad_list 'id,lower,size\n1,2,3\n' 'has no column "upper"'
    bad_list 'lower,upper,size\n0,4,1\n1,2\n' 'line 3: 2 cells, the header has 3'
    bad_list 'lower,upper,size\n0,4,-1\n' 'line 2: size is "-1", expected a whole number from 0'
    bad_list 'lower,upper,size\n0,4x,1\n' 'line 2: upper is "4x"'
    bad_list 'lower,upper,size\n0,4,99999999999999999999\n' 'line 2: size is "99999999999999999999"'
    bad_list 'lower,upper,size\n0,4,\n' 'line 2: size is ""'
    bad_list 'lower,upper,size\n4,4,1\n' 'line 2: upper is 4, not above lower, 4'
    bad_list 'lower,upper,size\n0,4,9000000000000000000\n' 'the sum of the sizes overflows at item 0'
    bad_list 'lower,upper,size\n0,4,1\0,9\n' 'line 2: a zero byte, expected text'
    mv lists/bad.csv lists/bad.99999999999999999999.csv
    expect 1 "the capacity in its name overflows" "$weft" plan --instances lists
}

case_benchmarks()
{
    expect 0 "gpt  " "$weft" bench gpt d_model=32 d_ff=64 --train --runs 1 --rounds 1
    expect 2 'no workload or model "none"' "$weft" bench none
    expect 2 'no workload "gpt"' "$weft" bench small-forward gpt
    expect 2 "--train needs MODEL or FILE.onnx" "$weft" bench small-forward --train
    expect 2 "--dump takes one workload" "$weft" bench gpt --dump file
    expect 0 "" "$weft" bench small-step --dump results
    grep -aq '"positive.11":{"dtype":"BOOL","shape":\[2,7,1024\]' results || fail "no signs of the last relu"
}

# against STATUS TEXT ARGUMENT...: compares short runs with an earlier one.
against()
{
    expect "$1" "$2" "$weft" bench --runs 1 --rounds 1 "${@:3}"
}

# The earlier times are replaced, so that no speed of the machine decides.
case_benchmarks_are_compared_with_earlier_ones()
{
    "$weft" bench small-forward --runs 1 --rounds 1 --threads 1 --json >old.json || fail "small-forward"
    sed 's/"min_ms":.*,/"min_ms": 1e-3,/' old.json >fast.json
    sed 's/"min_ms":.*,/"min_ms": 1e6,/; s/"isa":.*,/"isa": "none",/' old.json >slow.json
    against 0 "Slower than in slow.json by more than 3 %: 0 of 1." --against slow.json
    against 0 "slow.json: isa is \"none\", here" --against slow.json small-forward
    against 1 "  slower" --against fast.json
    against 1 '"slower":	true' --against fast.json --json
    against 0 "by more than 1e+12 %: 0 of 1." --against fast.json --limit 1e12
    "$weft" bench --runs 1 --rounds 1 --against slow.json --json >new.json || fail "slow.json is faster"
    grep -q '"threads":	1,' new.json || fail "the threads are not those of slow.json"
    grep -q '"plan_change":	0' new.json || fail "the plan differs"
    against 0 "had other threads" --against slow.json --threads 2
    against 1 "old.json: did not measure \"small-step\"" --against old.json small-step
    # A model, with its options.
    "$weft" bench gpt d_model=32 d_ff=64 --train --runs 1 --rounds 1 --json | sed 's/"min_ms":.*,/"min_ms": 1e6,/' >gpt.json
    against 0 "gpt  " --against gpt.json
    against 0 "gpt  " gpt d_ff=64 d_model=32 --train --against gpt.json
    against 1 "gpt.json: measured \"gpt\" with the options d_model=32 d_ff=64" gpt d_model=32 --train --against gpt.json
    against 1 "gpt.json: measured \"gpt\" with --train" gpt d_model=32 d_ff=64 --against gpt.json
    against 2 "--limit needs --against" small-forward --limit 5
    against 2 "--against excludes --growth and --dump" --growth --against old.json
}

# hostile CHANGE MESSAGE: what is said of old.json after a change by sed.
hostile()
{
    sed "$1" old.json >bad.json
    against 1 "bad.json: $2" --against bad.json
}

case_earlier_benchmarks_may_be_any_file()
{
    local none="has no workloads; expected the output of \`weft bench --json\`"
    "$weft" bench small-forward --runs 1 --rounds 1 --json >old.json || fail "small-forward"
    hostile '1,$d' "is not JSON, near byte 0"
    hostile '9,$d' "is not JSON, near byte"
    for text in '[]' '{}' '{"workloads": []}' '{"workloads": {"a": 1}}' '"workloads"'; do
        echo "$text" >bad.json
        against 1 "bad.json: $none" --against bad.json
    done
    hostile 's/"workload":.*,/"workload": 7,/' 'workloads[0]: "workload" is missing or invalid; expected a text'
    hostile 's/"model":.*,/"model": [],/' 'workloads[0]: "model" is missing'
    hostile 's/"options":.*,/"options": [1],/' 'workloads[0]: "options" is missing or invalid; expected a list of texts'
    hostile 's/"train":.*,/"train": 1,/' 'workloads[0]: "train" is missing'
    hostile 's/"precision":.*,/"precision": "f16",/' 'workloads[0]: "precision" is missing or invalid; expected f32|bf16'
    hostile 's/"threads":.*,/"threads": 1e30,/' 'workloads[0]: "threads" is missing'
    hostile 's/"threads":.*,/"threads": 1.5,/' 'workloads[0]: "threads" is missing'
    hostile 's/"min_ms":.*,//' 'workloads[0]: "min_ms" is missing'
    hostile 's/"min_ms":.*,/"min_ms": 1e999,/' 'workloads[0]: "min_ms" is missing'
    hostile 's/"gemm_gflops":.*,/"gemm_gflops": 0,/' 'workloads[0]: "gemm_gflops" is missing'
    hostile 's/"arena_bytes":.*,/"arena_bytes": -1,/' 'workloads[0]: "arena_bytes" is missing'
    hostile 's/"workload":.*,/"workload": "no\\u001b",/' 'unknown workload "no\x1b"'
    hostile 's/"workload":.*,/"workload": "gpt",/' 'measured "gpt" with the model "transformer"'
    hostile 's/"workload":.*,/"workload": "net.onnx",/' "measured a file: name it, and its options"
    hostile 's/"d_model=256"/"d_model=2"/' 'measured "small-forward" with the options vocab=10 d_model=2 '
    against 1 "missing.json: cannot be opened" --against missing.json
}

case_gradients_of_an_op_are_checked()
{
    expect 0 "ok" "$weft" check --op softmax
    expect 2 'no op "none"' "$weft" check --op none
    expect 0 "nothing to check" "$weft" check --op track
}

# At the model's own small size.
case_gradients_of_every_model_are_checked()
{
    for model in $(model_names); do expect 0 ": ok" "$weft" check "$model"; done
    # Options of published language models.
    expect 0 ": ok" "$weft" check llama head_dim=6 norm_qk=1 rotary_dim=4 rotary_scaling=yarn rotary_factor=4
    expect 0 ": ok" "$weft" check llama layers=2 norm=both gamma_plus_one=1 norm_qk=1 scaled_embeddings=1 \
        score_width=9 score_cap=2 logit_cap=3 window=2 global_every=2 local_rotary_base=100
    expect 0 ": ok" "$weft" check seq2seq attention=dot cell=lstm
    expect 0 ": ok" "$weft" check transformer projection=fused
}

case_threads_change_no_bits_of_a_training_step()
{
    "$weft" check --bits --threads 1 >bits || fail "check --bits"
    "$weft" check --bits --threads 3 >other || fail "check --bits with three threads"
    cmp bits other || fail "a training step has other bits with another number of threads"
    [ "$(wc -l <bits)" -eq $((1 + $("$weft" models | grep -c '^[a-z]'))) ] || fail "not every model has its bits: $(cat bits)"
    expect 0 "gpt" "$weft" check --bits gpt layers=3
    expect 0 "without join_products" env WEFT_SKIP=fuse,join_products "$weft" check --bits rnn
    expect 0 "as specified" env WEFT_SKIP=fuse,cse "$weft" check --bits rnn
    expect 0 "as specified" "$weft" check --bits --op softmax
    expect 0 '"softmax":' "$weft" check --bits --json
}

case_profiles()
{
    expect 0 "matmul" "$weft" profile "${small[@]}" --runs 2
    expect 0 " others)" "$weft" profile "${small[@]}" --runs 2 --rows 3
    expect 0 "Peaks measured" "$weft" profile "${small[@]}" --train --runs 2 --by scope --depth 1
    expect 0 "dec.0.norm_ffn/layer_norm" "$weft" profile "${small[@]}" --runs 1 --by node --threads 1
    expect 0 '"waiting_seconds"' "$weft" profile "${small[@]}" --runs 2 --json --trace trace.json
    grep -q '"thread_name"' trace.json || fail "no trace"
    expect 2 'not "colour"' "$weft" profile transformer --by colour
    expect 2 "--runs must be" "$weft" profile transformer --runs 0
    expect 2 "MODEL is missing" "$weft" profile --runs 1
    expect 1 "cannot be written" "$weft" profile "${small[@]}" --runs 1 --trace /no/such/folder/x
}

case_profiles_are_as_wide_as_the_terminal()
{
    for columns in "" 32 60 120; do
        COLUMNS=$columns "$weft" profile "${small[@]}" --train --runs 1 --by node >table.txt
        # The lines after the table are of 80 columns.
        [ "$(sed '/^$/,$d' table.txt | wc -L)" -le "${columns:-80}" ] ||
            fail "weft profile is wider than ${columns:-80} columns"
        [ "$(wc -l <table.txt)" -ge 50 ] || fail "weft profile prints $(wc -l <table.txt) lines with COLUMNS=$columns"
    done
}

case_a_run_from_corpus_to_translation()
{
    expect 0 "unigram entropy" "${train[@]}" --out run --steps 12
    expect 1 "exists already" "${train[@]}" --out run --steps 12
    expect 0 "after 20 steps" "${train[@]}" --out run --steps 20 --resume
    equal "11 lines in, another number out" "$(head -n 11 a.en | "$weft" translate run | wc -l)" 11
    mkdir cut
    cp run/vocab.model cut
    head -c 1000 run/model.safetensors >cut/model.safetensors
    expect 1 "longer than the file" "$weft" translate cut
    expect 1 "none: is neither a checkpoint" "$weft" translate none
}

case_training_prints_JSON()
{
    expect 0 '"validation_loss"' "${train[@]}" --out run --steps 3 --json
}

case_texts_that_are_refused()
{
    head -n 399 a.es >short.es
    : >empty.en
    expect 1 "missing.en: cannot be read" "${train[@]/#a.en/missing.en}" --out run --steps 3
    expect 1 "ends after 399 lines" "${train[@]/a.es/short.es}" --valid-target "" --valid-source "" --out run --steps 3
    expect 1 "empty.en" "${train[@]}" --valid-source "" --valid-source empty.en --valid-target "" \
        --valid-target empty.en --out run --steps 3
    expect 1 "cannot be made" "${train[@]}" --out a.en/run --steps 3
}

# SIGINT finishes the step, saves and leaves with 130.
case_SIGINT_saves_and_ends()
{
    # A shell starts a command in the background with SIGINT ignored.
    env --default-signal=INT "${train[@]}" --out run --minutes 5 >log 2>&1 &
    pid=$!
    for _ in $(seq 1200); do grep -q "^step" log && break; sleep 0.1; done
    kill -INT $pid
    wait $pid
    status=$?
    [ $status -eq 130 ] || fail "SIGINT gave status $status: $(cat log)"
    grep -q "stopped by a signal after" log || fail "SIGINT is not named: $(cat log)"
    [ -s run/model.safetensors ] || fail "SIGINT leaves no checkpoint"
}

run_cases
