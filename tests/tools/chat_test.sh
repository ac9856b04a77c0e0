#!/usr/bin/env bash
# weft chat with small models of random parameters: answers, commands, histories, the context.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
make_run=$build/tests/make_run

prepare()
{
    need_program tokenizer_ids
    for run in gpt llama; do
        mkdir $run
        cp "$tests/golden/tokenizers/gpt2.json" $run/tokenizer.json
        "$make_run" $run/model.safetensors $run vocab=910 layers=2 d_model=32 heads=2 d_ff=64 kv_heads=1 max_positions=512 ||
            fail "no $run"
        printf '%s' "{% for m in messages %}[{{ m.role }}] {{ m.content }}
{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}" >$run/chat_template.jinja
    done
    greedy=(--temperature 0 --tokens 12)
}

# continued RUN TEXT [OPTION...]: what generate appends to a text
continued()
{
    local whole
    whole=$("$weft" generate "$1" --prompt "$2" "${@:3}"; echo .)
    whole=${whole%$'\n.'}
    printf '%s' "${whole#"$2"}"
}

# chat RUN [OPTION...]: standard input answered, without the line end of the last answer
chat()
{
    "$weft" chat "$@" 2>errors
}

case_an_answer_continues_the_rendered_text()
{
    local text=$'[system] Be brief.\n[user] In the beginning\n[assistant]'
    for run in gpt llama; do
        for way in "--temperature 0" "--seed 3 --temperature 1 --top-p 1" "--seed 4 --top-k 5 --min-p 0.2 --top-p 1" \
            "--repetition-penalty 2 --no-repeat 2 --min-length 3 --temperature 0"; do
            # shellcheck disable=SC2086
            equal "$run $way" "$(chat $run $way --tokens 12 --system "Be brief." <<<"In the beginning")" \
                "$(continued $run "$text" --tokens 12 --temperature 0.7 $way)"
        done
    done
    equal "one message" "$("$weft" chat gpt "${greedy[@]}" --message "In the beginning")" \
        "$(chat gpt "${greedy[@]}" <<<"In the beginning")"
    equal "in bf16" "$(chat llama --cache bf16 "${greedy[@]}" <<<"In the beginning")" \
        "$(continued llama $'[user] In the beginning\n[assistant]' --cache bf16 "${greedy[@]}")"
}

# stats_of FILE: the log probability that /stats has printed last, with all digits
stats_of()
{
    sed -n 's/.*log probability //p' "$1" | tail -n 1
}

case_a_history_is_read_once()
{
    local fresh
    for run in gpt llama; do
        printf '%s\n' one "and two" /stats "and three" /stats "/save talk" | chat $run "${greedy[@]}" >answers
        cp errors continued
        grep -q "tokens were known, [1-9][0-9]* read" continued || fail "nothing is read"
        awk '/were known/ { for (i = 1; i < NF; i++) if ($(i + 1) == "tokens" && $i == 0) exit 1 }' continued ||
            fail "the history is read again"
        equal "six messages" "$(wc -l <talk)" 6
        fresh=$(printf '%s\n' "/load talk" /retry /stats | chat $run "${greedy[@]}")
        grep -q "the last answer: 0 tokens were known" errors || fail "not a new decoder"
        equal "$run: the same answer" "$(tail -n "$(wc -l <<<"$fresh")" answers)" "$fresh"
        equal "$run: to the bit" "$(stats_of errors)" "$(stats_of continued)"
        [ -n "$(stats_of errors)" ] || fail "no log probability"
    done
}

case_commands()
{
    local one two
    one=$(chat gpt "${greedy[@]}" <<<one)
    two=$(printf '%s\n' one two | chat gpt "${greedy[@]}" | tail -n +$(($(wc -l <<<"$one") + 1)))
    equal "/undo" "$(printf '%s\n' other /undo one | chat gpt "${greedy[@]}" | tail -n "$(wc -l <<<"$one")")" "$one"
    equal "/reset" "$(printf '%s\n' a b c /reset one | chat gpt "${greedy[@]}" | tail -n "$(wc -l <<<"$one")")" "$one"
    equal "/retry of a greedy answer" "$(printf '%s\n' one /retry | chat gpt "${greedy[@]}")" "$one"$'\n'"$one"
    equal "/retry, then on" "$(printf '%s\n' one /retry two | chat gpt "${greedy[@]}")" "$one"$'\n'"$one"$'\n'"$two"
    equal "/system" "$(printf '%s\n' "/system Be brief." one | chat gpt "${greedy[@]}")" \
        "$(chat gpt "${greedy[@]}" --system "Be brief." <<<one)"
    equal "no /system" "$(printf '%s\n' /system one | chat gpt "${greedy[@]}" --system "Be brief.")" "$one"
    equal "/quit" "$(printf '%s\n' one /quit two | chat gpt "${greedy[@]}")" "$one"
    equal "empty lines" "$(printf '%s\n' '' one ' ' | chat gpt "${greedy[@]}")" "$one"
    equal "a slash" "$(chat gpt "${greedy[@]}" <<<"//one")" "$(continued gpt $'[user] /one\n[assistant]' "${greedy[@]}")"
    printf '%s\n' /help /nothing /save /retry | chat gpt >answers
    [ -s answers ] && fail "commands print on standard output"
    for line in "/load FILE" "no command /nothing" "/save expects the name of a file" "no message to answer"; do
        grep -qF -- "$line" errors || fail "no \"$line\""
    done
    printf '%s\n' one /retry /retry | chat gpt --temperature 2 --seed 9 --tokens 40 >answers
    [ "$(sort -u answers | wc -l)" -gt 2 ] || fail "/retry samples the same answer"
}

case_conversations_in_files()
{
    printf '%s\n' "a \"quoted\" ☃" "/save talk" | chat gpt "${greedy[@]}" --system $'two\nlines' >answers
    equal "the messages" "$(python3 -c "
import json
for line in open('talk'): print(json.loads(line)['role'], end=' ')
print(json.loads(open('talk').readlines()[1])['content'])")" 'system user assistant a "quoted" ☃'
    printf '%s\n' "/load talk" "/save again" | chat gpt || fail "it cannot be loaded"
    cmp talk again || fail "another conversation"
    echo '{"role": "user"}' >bad
    input=<(echo "/load bad") expect 1 'line 1: expected {"role": "...", "content": "..."}' "$weft" chat gpt
    input=<(echo "/load none") expect 1 'none: ' "$weft" chat gpt
    input=<(echo "/save gpt/model.safetensors") expect 1 'gpt/model.safetensors' "$weft" chat gpt
}

case_a_full_context_forgets_the_oldest()
{
    for i in $(seq 12); do echo "message $i of this long talk"; done | chat llama "${greedy[@]}" --context 200 >answers ||
        fail "it ends: $(tail -n 1 errors)"
    grep -q "the context of 200 tokens is full: the model no longer sees the first [2-9]" errors || fail "nothing is forgotten"
    input=<(printf 'x%.0s' $(seq 500)) expect 1 "but the context has 64" "$weft" chat llama --context 64
    expect 1 "has 512 learned positions, fewer than 513" "$weft" chat gpt --context 513
}

case_any_end_ends_an_answer()
{
    local one first
    one=$(chat gpt "${greedy[@]}" <<<one)
    printf '%s' "[user] one
[assistant]" >prompt
    first=$("$weft" generate gpt --prompt "$(cat prompt)" --temperature 0 --tokens 1 >one_token;
        "$weft" vocab encode gpt <one_token | tail -n 1 | awk '{ print $NF }')
    echo "{\"eos_token_id\": [7, $first]}" >gpt/generation_config.json
    equal "at once" "$(chat gpt "${greedy[@]}" <<<one)" ""
    [[ $(chat gpt "${greedy[@]}" --min-length 5 <<<one) != "$one" ]] || fail "an end before --min-length"
}

case_a_terminal()
{
    printf '%s\n' one two | python3 "$tests/tools/terminal.py" "$weft" chat gpt "${greedy[@]}" >typed 2>errors
    equal "the answers" "$(grep -v " writes\?$" typed)" "$(printf '%s\n' one two | chat gpt "${greedy[@]}")"
    # Ctrl-C ends a long answer, and the conversation goes on.
    python3 - "$weft" >seen 2>errors <<'END'
import os, pty, signal, subprocess, sys
master, slave = pty.openpty()
chat = subprocess.Popen([sys.argv[1], "chat", "llama", "--temperature", "0", "--tokens", "1000000", "--context",
                         "1000000"], stdin=slave, stdout=subprocess.PIPE)
os.write(master, b"one\n")
chat.stdout.read(8)
chat.send_signal(signal.SIGINT)
while os.read(chat.stdout.fileno(), 65536)[-1:] != b"\n":
    pass
os.write(master, b"/save talk\n/quit\n")
print("status", chat.wait(60))
END
    equal "it goes on" "$(cat seen)" "status 0"
    equal "what was said stays" "$(wc -l <talk)" 2
}

case_what_cannot_converse()
{
    rm llama/chat_template.jinja
    expect 1 "llama: has no chat template" "$weft" chat llama --message one
    equal "a template of its own" "$(chat llama --template gpt/chat_template.jinja "${greedy[@]}" <<<one)" \
        "$(continued llama $'[user] one\n[assistant]' "${greedy[@]}")"
    echo "{{ raise_exception('no ' ~ messages[0].role) }}" >llama/chat_template.jinja
    expect 1 "no user" "$weft" chat llama --message one
    rm llama/tokenizer.json
    expect 1 "has neither a vocab.model nor a tokenizer.json" "$weft" chat llama --message one
    input=<(printf 'a\xff\n') expect 1 "message: is not UTF-8" "$weft" chat gpt
    mkdir bart && cp gpt/* bart/
    "$make_run" bart/model.safetensors transformer vocab=910 d_model=32 heads=2 d_ff=64 encoder_layers=1 decoder_layers=1
    echo '{"decoder_start_token_id": 2}' >bart/generation_config.json
    expect 1 "cannot converse" "$weft" chat bart --message one
}

run_cases
