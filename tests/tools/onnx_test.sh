#!/usr/bin/env bash
# ONNX files in the program: run, models, plan, dot, profile and check, and their errors, which are one line each.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
# Published cases of ONNX.
published=/usr/share/libonnx-testdata/data

prepare()
{
    local kind
    need_program make_onnx
    for kind in mlp other length reshape integers; do
        "$build/tests/make_onnx" $kind.onnx $kind || fail "make_onnx $kind"
    done
    # Outputs from synthetic inputs, and from inputs in files.
    expect 0 "logits  f32 [4, 4]" "$weft" run mlp.onnx --random --batch 4 --threads 1 --out one
    npy x.npy '<f4' '1, 3' '\0\0\0\0\0\0\x80\x3f\0\0\0\x40'
    npy ids.npy '<i4' '1, 2' '\x04\0\0\0\x01\0\0\0'
    expect 0 "logits  f32 [1, 4]" "$weft" run mlp.onnx --input x=x.npy --input ids=ids.npy --out given
}

# refuse TEXT COMMAND...: status 1, nothing but one line "weft: ..." with the text on stderr.
refuse()
{
    local text=$1 was
    shift
    "$@" >out 2>err </dev/null
    was=$?
    if [ $was -ne 1 ] || [ "$(wc -l <err)" -ne 1 ] || ! grep -q '^weft: ' err ||
        ! grep -qF -- "$text" err; then
        fail "$* gave status $was, expected 1 and one line with \"$text\"; it printed:"
        head -n 6 out err
    fi
}

# What `check` prints of a file: the bits of its gradients, and its worst derivative.
bits_of() { "$weft" check --bits "$1" | grep -oE '[0-9a-f]{16}$'; }
worst_of() { "$weft" check "$1" | grep -oE 'analytic .*'; }

# Outputs do not depend on the number of threads.
case_made_up_inputs_depend_on_the_seed_only()
{
    local threads
    for threads in 1 2; do
        expect 0 "logits  equals the reference: 0 of 16 elements beyond the tolerance, largest difference 0" \
            "$weft" run mlp.onnx --random --dim N=4 --threads $threads --check one --rtol 0 --atol 0
    done
    "$weft" run mlp.onnx --random --batch 4 --threads 2 --out two >two.txt || fail "run on two threads"
    diff -r one two || fail "outputs at 1 and 2 threads differ"
    expect 1 "logits  differs: 16 of 16" "$weft" run mlp.onnx --random --batch 4 --check one --seed 2
    expect 1 "logits  differs: the reference is f32 [4, 4]" \
        "$weft" run mlp.onnx --random --batch 3 --check one
    refuse "none/class.npy" "$weft" run mlp.onnx --random --check none
}

# An output by its name, and a node by the name in a profile.
case_what_nodes_compute()
{
    local node
    node=$("$weft" profile mlp.onnx --runs 1 --by node --json | sed -n 's/.*"name":.*"\(.*matmul\)".*/\1/p' | head -n 1)
    expect 0 "logits" "$weft" run mlp.onnx --random --batch 4 --dump logits=logits.npy --dump "$node=node.npy"
    cmp logits.npy one/logits.npy || fail "--dump logits is not the output"
    [ -s node.npy ] || fail "--dump $node wrote nothing"
    refuse 'logit: is not a value of the model; did you mean "logits"?' "$weft" run mlp.onnx --random --dump logit=x.npy
    expect 0 "W1  f32 [3, 6]" "$weft" run mlp.onnx --random --dump W1=weight.npy
    refuse "none/x.npy: cannot be written" "$weft" run mlp.onnx --random --dump logits=none/x.npy
}

case_inputs_from_files()
{
    npy other.npy '<i4' '1, 2' '\x04\0\0\0\x02\0\0\0'
    expect 1 "logits  differs" \
        "$weft" run mlp.onnx --input x=x.npy --input ids=other.npy --check given
    expect 0 "logits  f32 [1, 4]" "$weft" run mlp.onnx --input x=x.npy --random
    refuse "ids: is not given" "$weft" run mlp.onnx --input x=x.npy
    refuse "y: is not an input of the model" "$weft" run mlp.onnx --random --input y=x.npy
    refuse "x: is f32 [1, 3], but the model expects f32 [2, 3]" \
        "$weft" run mlp.onnx --random --batch 2 --input x=x.npy
    refuse "x: is i32 [1, 2], but the model expects f32 [1, 3]" \
        "$weft" run mlp.onnx --random --input x=ids.npy
    refuse "none.npy" "$weft" run mlp.onnx --random --input x=none.npy
    refuse "mlp.onnx" "$weft" run mlp.onnx --random --input x=mlp.onnx
    npy wide.npy '<i4' '1, 2' '\x05\0\0\0\x01\0\0\0'
    refuse "index 5 is outside [0, 5)" "$weft" run mlp.onnx --input x=x.npy --input ids=wide.npy
}

case_inputs_from_an_archive()
{
    "$weft" run mlp.onnx --random --input none.npz 2>&1 | grep -q "built without libzip" &&
        skip "weft was built without libzip"
    python3 - <<'PYTHON' || fail "python3 cannot write an archive"
import zipfile
with zipfile.ZipFile("both.npz", "w") as archive:
    for name in "x", "ids":
        archive.write(name + ".npy")
PYTHON
    expect 0 "logits  equals the reference" "$weft" run mlp.onnx --input both.npz --check given
    refuse "none.npz" "$weft" run mlp.onnx --random --input none.npz
}

case_shapes()
{
    refuse 'x: has an open dimension 1 ("T"): its size must be given' "$weft" run length.onnx --random
    expect 0 "logits  f32 [2, 4]" "$weft" run length.onnx --random --dim T=7 --batch 2
    expect 0 "logits  f32 [1, 4]" "$weft" run length.onnx --random --dim x:1=7
    refuse "M: is not an open dimension" "$weft" run mlp.onnx --random --dim M=3
    refuse "x: is not an input with a dimension 2" "$weft" plan mlp.onnx --dim x:2=3
    refuse "z: is not an input with a dimension 0" "$weft" plan mlp.onnx --dim z:0=3
}

case_constant_contents_of_inputs()
{
    npy shape.npy '<i4' '2' '\x03\0\0\0\x02\0\0\0'
    npy wrong.npy '<i4' '2' '\x04\0\0\0\x02\0\0\0'
    refuse 'y (Reshape): needs the contents of "shape"' "$weft" run reshape.onnx --random
    expect 0 "y  f32 [3, 2]" "$weft" run reshape.onnx --random --constant shape=shape.npy
    expect 0 "nodes" "$weft" plan reshape.onnx --constant shape=shape.npy
    refuse "[2, 3] does not reshape to [4, 2]" "$weft" plan reshape.onnx --constant shape=wrong.npy
    refuse "shape: is i32, its constant contents are f32" "$weft" plan reshape.onnx --constant shape=x.npy
}

case_files_that_are_wrong_for_every_command()
{
    local command words
    head -c 100 mlp.onnx >cut.onnx
    echo "no model" >text.onnx
    : >empty.onnx
    mkdir folder.onnx
    for command in run models plan "dot -o -" profile bench check "check --bits"; do
        read -ra words <<<"$command"
        refuse "none.onnx: cannot be opened" "$weft" "${words[@]}" none.onnx
        refuse "cut.onnx: is not an ONNX model, or is cut off" "$weft" "${words[@]}" cut.onnx
        refuse "text.onnx: is not an ONNX model" "$weft" "${words[@]}" text.onnx
        refuse "empty.onnx: is not a file of 1 to" "$weft" "${words[@]}" empty.onnx
        refuse "folder.onnx: cannot be opened: Is a directory" "$weft" "${words[@]}" folder.onnx
    done
}

case_command_lines_that_are_wrong()
{
    expect 2 "FILE.onnx or RUN is missing" "$weft" run
    expect 2 "only one FILE.onnx or RUN can be given" "$weft" run mlp.onnx mlp.onnx
    expect 2 "expected NAME=FILE" "$weft" run mlp.onnx --input x.npy
    expect 2 "expected NAME=FILE" "$weft" plan mlp.onnx --constant both.npz
    expect 2 "--dim expects NAME=N" "$weft" plan mlp.onnx --dim 3
    expect 2 "--dim expects NAME=N" "$weft" plan mlp.onnx --dim N=-1
    expect 2 "--batch must be a whole number" "$weft" plan mlp.onnx --batch 0
    expect 2 "FILE.onnx takes no option \"batch=3\"" "$weft" plan mlp.onnx batch=3
    expect 2 "need FILE.onnx" "$weft" plan gpt --batch 3
    expect 2 "one model at a time" "$weft" models mlp.onnx mlp.onnx
    expect 2 "--instances excludes a model" "$weft" plan mlp.onnx --instances .
}

case_models_plan_profile_and_bench()
{
    expect 0 "mlp.onnx: 82 parameters" "$weft" models mlp.onnx
    expect 0 "[7, 3]" "$weft" models mlp.onnx --dim N=7
    expect 0 '"weights"' "$weft" models mlp.onnx --json
    expect 0 "arena_bytes" "$weft" plan mlp.onnx --batch 8
    expect 0 '"model":	"mlp.onnx"' "$weft" plan mlp.onnx --json
    [ "$("$weft" plan mlp.onnx --batch 100 | awk '$1 == "sum_bytes" {print $2}')" -gt \
        "$("$weft" plan mlp.onnx | awk '$1 == "sum_bytes" {print $2}')" ] || fail "--batch changes no plan"
    expect 0 "adam_update" "$weft" profile mlp.onnx --train --runs 1
    expect 0 "tanh" "$weft" profile mlp.onnx --runs 1 --batch 4
    expect 0 '"model":	"mlp.onnx"' "$weft" profile mlp.onnx --runs 1 --json
    expect 0 "mlp.onnx  " "$weft" bench mlp.onnx --batch 4 --runs 1 --rounds 1
    expect 0 '"doc":	"whole Adam step"' "$weft" bench mlp.onnx --train --runs 1 --rounds 1 --json
    "$weft" bench mlp.onnx --batch 4 --runs 1 --rounds 1 --json | sed 's/"min_ms":.*,/"min_ms": 1e6,/' >old.json
    expect 0 "0 of 1" "$weft" bench mlp.onnx --batch 4 --runs 1 --rounds 1 --against old.json
    expect 1 'old.json: measured "mlp.onnx" with the options batch=4' "$weft" bench mlp.onnx --against old.json
    expect 1 "old.json: measured a file: name it" "$weft" bench --against old.json
}

case_drawing()
{
    local options words
    expect 0 'label="W1' "$weft" dot mlp.onnx -o -
    for options in --planned --train "--overlay time --runs 1"; do
        read -ra words <<<"$options"
        expect 0 "digraph weft" "$weft" dot mlp.onnx -o - "${words[@]}"
    done
}

case_help_says_what_the_loss_of_a_file_is()
{
    local command
    for command in plan dot profile bench check; do
        "$weft" $command --help | tr -s '\n ' ' ' >help
        grep -qF "mean of squares of its first floating-point output" help ||
            fail "$command --help does not say what the loss of a file is"
    done
}

case_integers_alone_have_no_gradient()
{
    local command words
    expect 0 "y  i32 [2, 3]" "$weft" run integers.onnx --random
    expect 0 "add" "$weft" profile integers.onnx --runs 1
    for command in "plan --train" "profile --train" "bench --train" check; do
        read -ra words <<<"$command"
        refuse "the model has no floating-point output" "$weft" "${words[@]}" integers.onnx
    done
}

case_inner_values()
{
    expect 0 "h  f32 [1, 6]" "$weft" run mlp.onnx --input x=x.npy --input ids=ids.npy --outputs logits,h --out inner
    expect 0 "logits  equals the reference" "$weft" run mlp.onnx --input x=x.npy --input ids=ids.npy --outputs logits \
        --check inner --rtol 0 --atol 0
    refuse "hidden: is to be an output, but it is not a value" "$weft" run mlp.onnx --random --outputs hidden
    refuse "names an output twice" "$weft" run mlp.onnx --random --outputs h,logits,h,class
}

case_check()
{
    expect 0 ": ok" "$weft" check mlp.onnx --batch 3
    expect 0 '"verdict":	"ok"' "$weft" check mlp.onnx --json
    expect 0 ": ok" "$weft" check length.onnx --dim T=4
    "$weft" check --bits --threads 1 mlp.onnx >bits || fail "check --bits"
    expect 0 "$(cat bits)" "$weft" check --bits --threads 2 mlp.onnx
}

# The weights are the file's, and all of them and the inputs are checked, at most 6 elements each.
case_check_uses_the_weights_of_the_file()
{
    [ "$(bits_of mlp.onnx)" != "$(bits_of other.onnx)" ] || fail "check --bits ignores the weights"
    [ "$(worst_of mlp.onnx)" != "$(worst_of other.onnx)" ] || fail "check ignores the weights"
    expect 0 "length.onnx" "$weft" check --bits length.onnx --dim T=4
    [ "$("$weft" check mlp.onnx | grep -oE '[0-9]+ derivatives')" = "31 derivatives" ] ||
        fail "check does not check all parameters and inputs"
}

case_published_cases_of_ONNX()
{
    local case model
    [ -d $published ] || skip "libonnx-testdata is not installed"
    for case in pytorch-converted/test_{Linear,Embedding,GLU,PReLU_2d,LogSoftmax,Softplus}; do
        model=$published/$case/model.onnx
        expect 0 "parameters" "$weft" run "$model" --random --out case
        expect 0 "equals the reference" "$weft" run "$model" --random --threads 2 --check case
        expect 0 "arena_bytes" "$weft" plan "$model"
        expect 0 "arena_bytes" "$weft" plan "$model" --json
        expect 0 ": ok" "$weft" check "$model"
        rm -rf case
    done
    expect 0 "roofline" "$weft" profile $published/pytorch-converted/test_Linear/model.onnx --runs 1
}

run_cases
