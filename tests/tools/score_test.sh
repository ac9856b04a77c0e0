#!/usr/bin/env bash
# weft score from outside: BLEU and chrF of a text, of its sentences, and of systems against each other.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"

prepare()
{
    head -n 300 "$data/train.en" >a.en
    head -n 300 "$data/train.es" >a.es
    head -n 299 a.es >short.es
    printf 'la luz\nel dia y la noche\n\n' >ref.es
    printf 'la luz\nel dia y la luz\namen\n' >first.es
    printf 'luz\nel dia y la noche\nno\n' >other.es
}

case_a_text_against_itself()
{
    expect 0 "BLEU = 100.00 100.0/100.0/100.0/100.0 (BP = 1.000 ratio = 1.000" "$weft" score a.es a.es
    expect 0 "nrefs:2|case:lc|eff:no|tok:13a|smooth:exp|version:weft-" "$weft" score a.es a.es a.en --lowercase
    expect 0 "chrF2++ = 100.00" "$weft" score a.es a.es --plus
    expect 0 '"bleu":	100' "$weft" score a.es a.es --json
    equal "case counts, but not in lower case" \
        "$("$weft" score <(tr a-z A-Z <a.es) a.es --json | grep -c '"bleu":	100')" 0
}

case_a_carriage_return_within_a_line_is_white_space()
{
    expect 0 "hyp_len = 2 ref_len = 2" "$weft" score <(printf 'a\rb\n') <(printf 'a b\n')
}

case_files_that_are_refused()
{
    expect 1 "has 299 lines, a.es has 300" "$weft" score a.es <(head -n 299 a.es)
    expect 1 "missing: cannot be opened" "$weft" score a.es missing
    expect 2 "at least one of REFERENCES" "$weft" score a.es
    expect 2 "can be one file only" "$weft" score - -
}

case_scores_of_sentences()
{
    expect 0 "1: BLEU = 100.00 chrF2 = 100.00" "$weft" score first.es ref.es --sentences
    expect 0 "2: BLEU = 66.87 chrF2 = 53.10" "$weft" score first.es ref.es --sentences
    expect 0 "2: BLEU = 66.87 chrF2++ = 59.28" "$weft" score first.es ref.es --sentences --plus
    expect 0 "3: BLEU = 0.00 chrF2 = 0.00" "$weft" score first.es ref.es --sentences
    expect 0 "BLEU = 66.87 75.0/80.0/66.7/50.0" "$weft" score first.es ref.es --sentences
    expect 0 '"sentences":	[{' "$weft" score first.es ref.es --sentences --json
}

case_systems_against_each_other()
{
    expect 0 "p = 1.0000  first.es" "$weft" score first.es ref.es --against other.es --against first.es
    expect 0 "nrefs:1|bs:20|seed:3|case:lc|eff:no" "$weft" score first.es ref.es --against other.es -l \
        --samples 20 --seed 3
    expect 0 '"hypotheses":	"other.es"' "$weft" score first.es ref.es --against other.es --json
    input=other.es expect 0 "p = " "$weft" score first.es ref.es --against -
}

case_systems_that_are_refused()
{
    expect 1 "short.es: has 299 lines, a.es has 300" "$weft" score a.es a.es --against short.es
    expect 1 "missing.es: cannot be opened" "$weft" score first.es ref.es --against missing.es
    expect 2 "can be one file only" "$weft" score - ref.es --against -
    expect 2 "--samples needs --against" "$weft" score first.es ref.es --samples 10
    expect 2 "--seed needs --against" "$weft" score first.es ref.es --seed 1
    expect 2 "--samples must be a whole number from 1" "$weft" score first.es ref.es --against other.es --samples 0
    expect 2 "exclude each other" "$weft" score first.es ref.es --against other.es --sentences
}

run_cases
