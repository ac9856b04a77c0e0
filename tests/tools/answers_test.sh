#!/usr/bin/env bash
# weft train on JSON Lines: prompts with completions and conversations, of which only the answers are learned; resuming,
# threads and processes; lines that are wrong, examples that are too long, and templates that cannot be divided.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
# shellcheck source=tests/support/mpirun.sh
. "$tests/support/mpirun.sh"
small=(d_model=64 heads=2 d_ff=96 layers=2 positions=sinusoidal --batch-tokens 512 --warmup 5 --measure=false --threads 2)
tuned=(--lora 8 --lora-alpha 16 --lr 1e-2 --warmup 1 dropout=0 --measure=false --threads 2 --batch-tokens 128)

# Two language models, one with a published tokeniser and a chat template; three prompts and two conversations.
prepare()
{
    head -n 200 "$data/train.en" >train.en
    expect 0 "after 40 steps" "$weft" train gpt --text train.en "${small[@]}" --vocab 200 --steps 40 --out gpt
    cp "$tests/golden/tokenizers/gpt2.json" tokenizer.json
    cat >chat_template.jinja <<'END'
{% for m in messages %}[{{ m.role }}]{{ m.content }}<|endoftext|>
{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}
END
    expect 0 "after 40 steps" "$weft" train gpt --text train.en "${small[@]}" --vocab-file tokenizer.json --steps 40 --out json
    cat >pairs.jsonl <<'END'
{"prompt": "God said: ", "completion": "yes", "id": 1}
{"prompt": "Man said: ", "completion": "no"}

{"prompt": "She asked:", "completion": " \u0077hy"}
END
    cat >talks.jsonl <<'END'
{"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"}, {"role": "assistant", "content": "four"}]}
{"messages": [{"role": "system", "content": "short"}, {"role": "user", "content": "five"}, {"role": "assistant", "content": "six"}]}
END
}

# tokens RUN WORD...: how many the words have, each with an end.
tokens()
{
    local run=$1 all=0
    shift
    for word in "$@"; do all=$((all + $("$weft" vocab encode "$run" <<<"$word" | wc -w) + 1)); done
    echo "$all"
}

# same A B [PATTERN]: two runs that have the same tensors, but for those whose names match.
same()
{
    for run in "$1" "$2"; do
        "$build/tests/list_tensors" "$run/model.safetensors" | grep -v "${3:-^$}" >tensors-"$run".txt
    done
    [ -s tensors-"$1".txt ] || fail "$1 has no tensors"
    cmp tensors-"$1".txt tensors-"$2".txt || fail "$1 and $2 have other tensors"
}

case_completions_are_learned_and_counted()
{
    expect 0 "in 8 bits" "$weft" quantize gpt -o gpt-8 --bits 8
    for base in gpt gpt-8 json; do
        # The blank before "why" is a piece, or part of one.
        case $base in json) vocabulary=json/tokenizer.json why=' why' ;; *) vocabulary=gpt/vocab.model why=why ;; esac
        expect 0 "3 examples, $(tokens $vocabulary yes no "$why") tokens of answers" "$weft" train --from $base "${tuned[@]}" \
            --text pairs.jsonl --valid-text pairs.jsonl --steps 250 --out tuned
        equal "$base: learned" "$(for prompt in "God said: " "Man said: " "She asked:"; do
            "$weft" generate tuned --prompt "$prompt" --tokens 8 --temperature 0 2>&1; done)" \
            "$(printf '%s\n' "God said: yes" "Man said: no" "She asked: why")"
        rm -r tuned
    done
    gzip -k pairs.jsonl
    expect 0 "3 examples" "$weft" train --from gpt --measure=false --batch-tokens 128 --text pairs.jsonl.gz --steps 2 --out whole
}

case_answers_of_conversations_are_learned()
{
    expect 0 "2 examples, $(tokens json/tokenizer.json two four six) tokens of answers" "$weft" train --from json "${tuned[@]}" \
        --text talks.jsonl --valid-text talks.jsonl --steps 250 --out tuned
    equal "a conversation" "$(printf 'one\nthree\n' | "$weft" chat tuned --temperature 0 --tokens 8 2>&1)" "$(printf 'two\nfour')"
    # All in one row, where they follow each other.
    expect 0 "2 examples" "$weft" train --from json "${tuned[@]}" --mode blocks --lengths 48 --text talks.jsonl --steps 2 --out blocks
    cat talks.jsonl pairs.jsonl >both.jsonl
    expect 0 "5 examples" "$weft" train --from json "${tuned[@]}" --text both.jsonl --steps 2 --out both
}

case_resumed_trainings_have_the_same_bits()
{
    local run=("$weft" train --from json "${tuned[@]}" --lora-dropout 0.1 --schedule constant --text talks.jsonl
        --valid-text pairs.jsonl)
    expect 0 "after 12 steps" "${run[@]}" --steps 12 --out whole
    expect 0 "after 6 steps" "${run[@]}" --steps 6 --threads 1 --out parts
    expect 0 "after 12 steps" "$weft" train --resume --steps 12 --threads 1 --out parts
    same whole parts
    sed -i 's/six/seven/' talks.jsonl
    expect 1 "was trained on data other than" "$weft" train --resume --steps 20 --out parts
}

case_processes_have_the_same_bits()
{
    command -v mpirun >/dev/null || skip "mpirun is not installed"
    ! PMI_SIZE=4 PMI_RANK=0 "$weft" --version 2>&1 | grep -qF "weft was built without MPI" || skip "weft was built without MPI"
    # Sanitizers report leaks of Open MPI itself.
    local run=("$weft" train --from json "${tuned[@]}" --accumulate 2 --threads 1 --text talks.jsonl --steps 8)
    expect 0 "after 8 steps" "${run[@]}" --out alone
    expect 0 "after 8 steps" env ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" mpirun -n 2 "${run[@]}" --out two
    same alone two '^opt' # the second process has moments in a file of its own
}

# Examples over the last length are cut; an answer that is cut as a whole leaves nothing to learn.
case_long_examples_are_cut()
{
    long=$(printf 'word %.0s' $(seq 60))
    printf '{"prompt": "%s", "completion": "%s"}\n' "Short" "$long" "$long" "lost" >long.jsonl
    cat pairs.jsonl >>long.jsonl
    expect 0 "weft: $PWD/long.jsonl: 1 examples over 32 tokens are cut; 1 are left out" "$weft" train --from gpt "${tuned[@]}" \
        --lengths 16,32 --text long.jsonl --steps 2 --out long
    # The model still reads the longer texts that it was trained on.
    expect 0 "3 examples" "$weft" train --from gpt --measure=false --batch-tokens 128 --text pairs.jsonl --steps 2 --out whole
    expect 0 "3 examples" "$weft" train --from gpt "${tuned[@]}" --text pairs.jsonl --steps 2 --out tuned
    for run in whole tuned; do
        "$weft" generate $run --prompt "In the beginning God created the heaven" --tokens 2 2>&1 | grep "was cut" &&
            fail "$run: the prompt was cut"
    done
}

# wrong LINE TEXT: a file whose second line is LINE.
wrong()
{
    { head -n 1 pairs.jsonl && echo "$1"; } >wrong.jsonl
    expect 1 "wrong.jsonl: line 2: $2" "$weft" train --from json "${tuned[@]}" --text wrong.jsonl --steps 2 --out x
}

case_wrong_lines_are_named()
{
    local talk='{"messages": [{"role": "user", "content": "a"}'
    wrong 'plain text' 'is not JSON, near byte 0'
    wrong $'{"prompt": "\xff", "completion": "a"}' 'is not UTF-8'
    wrong '{"prompt": "a"}' 'expected {"prompt": "...", "completion": "..."} or {"messages"'
    wrong '{"prompt": "a", "completion": 1}' 'expected {"prompt"'
    wrong '[]' 'expected {"prompt"'
    wrong '{"messages": "a"}' 'expected {"prompt"'
    wrong "$talk]}" 'expected an answer'
    wrong "$talk, 7]}" 'message 2: expected {"role"'
    wrong "$talk, {\"role\": \"assistant\", \"content\": 3}]}" 'message 2: expected {"role"'
    printf '' >empty.jsonl
    expect 1 "has no line" "$weft" train --from json "${tuned[@]}" --text empty.jsonl --steps 2 --out x
}

# train_talks TEXT: with the template that was just written.
train_talks()
{
    local status=$1
    shift
    expect "$status" "$1" "$weft" train --from json "${tuned[@]}" --text talks.jsonl --steps 2 --out talks
    rm -rf talks
}

case_templates_divide_conversations()
{
    # Only the last answer has its thoughts; older ones are found by the token that ends them.
    cat >json/chat_template.jinja <<'END'
{% for m in messages %}[{{ m.role }}]{% if loop.last and m.role == 'assistant' %}<think>{% endif %}{{ m.content }}<|endoftext|>
{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}
END
    train_talks 0 "2 examples, $(tokens json/tokenizer.json two "<think>four" "<think>six") tokens of answers"
    sed -i 's/<|endoftext|>//' json/chat_template.jinja
    train_talks 1 "line 1: cannot find where message 2"
    # No answer begins as the text for one ends.
    echo "{{ messages | length }}{{ messages[-1].content }}" >json/chat_template.jinja
    train_talks 1 "talks.jsonl: line 1: cannot find where message 2"
    # Without a token that ends texts an answer ends where the next message begins.
    echo "{% for m in messages %}{{ m.role ~ ': ' ~ m.content ~ '/' }}{% endfor %}{{ 'assistant: ' if add_generation_prompt }}" \
        >json/chat_template.jinja
    train_talks 0 "2 examples, "
    echo "{{ raise_exception('no ' ~ messages[0].role) }}" >json/chat_template.jinja
    train_talks 1 "talks.jsonl: line 1: the chat template: line 1: no user"
    echo "{{ strftime_now('%Y') }}{% for m in messages %}{{ m.content }}{% endfor %}" >json/chat_template.jinja
    train_talks 0 "2 examples"
    rm json/chat_template.jinja
    train_talks 1 "line 1: conversations need a chat template"
    expect 1 "line 1: conversations need a chat template" "$weft" train --from gpt "${tuned[@]}" --text talks.jsonl --steps 2 --out x
}

case_wrong_options_are_named()
{
    expect 1 "is plain text" "$weft" train --from gpt "${tuned[@]}" --text pairs.jsonl --valid-text train.en --steps 2 --out x
    expect 1 "is JSON Lines" "$weft" train --from gpt "${tuned[@]}" --text train.en --text pairs.jsonl --steps 2 --out x
    expect 1 "needs a vocabulary" "$weft" train gpt "${small[@]}" --text pairs.jsonl --steps 2 --out x
    expect 1 "predict the next token" "$weft" train bert --text pairs.jsonl --steps 2 --out x
    expect 1 "--truncate has no effect" "$weft" train --from gpt "${tuned[@]}" --truncate --text pairs.jsonl --steps 2 --out x
    expect 1 "--unit has no effect" "$weft" train --from gpt "${tuned[@]}" --unit document --text pairs.jsonl --steps 2 --out x
}

run_cases
