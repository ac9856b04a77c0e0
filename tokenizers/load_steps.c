/* Normalisers and pre-tokenisers of a tokenizer.json. */
#include "load.h"

#include "unicode.h"

#include <stdlib.h>
#include <string.h>

/* ---- Normalisers ---- */

static tk_normalizer *add_normalizer(tk_loader *l, tk_normalize *apply)
{
    tk_state *s = l->state;
    if (!weft__tk_grow(l, &s->normalizers, s->n_normalizers, sizeof *s->normalizers)) return NULL;
    tk_normalizer *n = &s->normalizers[s->n_normalizers++];
    *n = (tk_normalizer){.apply = apply};
    return n;
}

static void load_simple(tk_loader *l, const tk_place *at, tk_normalize *apply)
{
    (void)at;
    add_normalizer(l, apply);
}

static void add_form(tk_loader *l, bool compatible, bool compose)
{
    tk_normalizer *n = add_normalizer(l, weft__tk_form);
    if (!n) return;
    n->compatible = compatible;
    n->compose = compose;
}

static void load_form(tk_loader *l, const tk_place *at, tk_normalize *apply)
{
    (void)apply;
    const char *type = weft__tk_type(l, at);
    add_form(l, strchr(type, 'K') != NULL, type[strlen(type) - 1] == 'C');
}

static void load_bert(tk_loader *l, const tk_place *at, tk_normalize *apply)
{
    (void)apply;
    const bool lowercase = weft__tk_bool(l, at, "lowercase", true);
    if (weft__tk_bool(l, at, "clean_text", true)) add_normalizer(l, weft__tk_clean);
    if (weft__tk_bool(l, at, "handle_chinese_chars", true))
        add_normalizer(l, weft__tk_space_ideographs);
    if (weft__tk_bool(l, at, "strip_accents", lowercase)) {
        add_form(l, false, false);
        add_normalizer(l, weft__tk_drop_nonspacing);
    }
    if (lowercase) add_normalizer(l, weft__tk_lower);
}

static void load_strip(tk_loader *l, const tk_place *at, tk_normalize *apply)
{
    tk_normalizer *n = add_normalizer(l, apply);
    if (!n) return;
    n->left = weft__tk_bool(l, at, "strip_left", true);
    n->right = weft__tk_bool(l, at, "strip_right", true);
}

static void load_replace(tk_loader *l, const tk_place *at, tk_normalize *apply)
{
    tk_normalizer *n = add_normalizer(l, apply);
    if (!n) return;
    n->pattern = weft__tk_pattern(l, at);
    n->content = weft__tk_string_copy(l, at, "content", NULL);
}

static void load_prepend(tk_loader *l, const tk_place *at, tk_normalize *apply)
{
    tk_normalizer *n = add_normalizer(l, apply);
    if (n) n->content = weft__tk_string_copy(l, at, "prepend", NULL);
}

/* The bytes of base64, whose number *n becomes; NULL on failure. */
static unsigned char *read_base64(tk_loader *l, const tk_place *at, const char *text, size_t *n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t length = strcspn(text, "=");
    unsigned char *bytes = weft__tk_alloc(l, length + 1, 1);
    uint32_t bits = 0;
    *n = 0;
    for (size_t i = 0; bytes && i < length; i++) {
        const char *digit = strchr(digits, text[i]);
        if (!digit) {
            weft__tk_refuse(l, at, "is not base64");
            free(bytes);
            return NULL;
        }
        bits = bits << 6 | (uint32_t)(digit - digits);
        if (i % 4) bytes[(*n)++] = (unsigned char)(bits >> (6 - 2 * (i % 4)) & 0xFF);
    }
    return bytes;
}

/* A number of units, the units, and the texts; all little-endian. */
static void read_charsmap(tk_loader *l, const tk_place *at, tk_charsmap *m,
                          const unsigned char *bytes, size_t n)
{
    uint32_t size = 0;
    for (size_t i = 0; n >= 4 && i < 4; i++) size |= (uint32_t)bytes[i] << 8 * i;
    if (n < 4 || size > n - 4 || size < 4) {
        weft__tk_refuse(l, at, "is not a map of characters");
        return;
    }
    m->n_units = size / 4;
    m->units = weft__tk_alloc(l, m->n_units, sizeof *m->units);
    m->n_texts = n - 4 - 4 * m->n_units;
    m->texts = weft__tk_alloc(l, m->n_texts + 1, 1);
    if (!m->units || !m->texts) return;
    for (size_t i = 0; i < 4 * m->n_units; i++)
        m->units[i / 4] |= (uint32_t)bytes[4 + i] << 8 * (i % 4);
    memcpy(m->texts, bytes + 4 + 4 * m->n_units, m->n_texts);
    for (size_t i = 0; i < m->n_texts; i += strlen(m->texts + i) + 1)
        if (!weft_text_is_utf8(m->texts + i, strlen(m->texts + i)))
            weft__tk_refuse(l, at, "has a text that is not UTF-8");
}

static void load_precompiled(tk_loader *l, const tk_place *at, tk_normalize *apply)
{
    const char *text = weft__tk_string(l, at, "precompiled_charsmap", "");
    const tk_place map = weft__tk_member(at, "precompiled_charsmap");
    size_t n;
    if (!*text) return; /* an identity */
    tk_normalizer *step = add_normalizer(l, apply);
    unsigned char *bytes = step ? read_base64(l, &map, text, &n) : NULL;
    if (bytes) read_charsmap(l, &map, &step->charsmap, bytes, n);
    free(bytes);
}

static void load_normalizers(tk_loader *l, const tk_place *at, tk_normalize *apply)
{
    (void)apply;
    const tk_place list = weft__tk_member(at, "normalizers");
    size_t n, i = 0;
    for (const cJSON *c = weft__tk_array(l, &list, true, &n); c; c = c->next, i++) {
        const tk_place one = {&list, NULL, i, c};
        weft__tk_load_normalizer(l, &one);
    }
}

void weft__tk_load_normalizer(tk_loader *l, const tk_place *at)
{
    static const struct {
        const char *type;
        void (*load)(tk_loader *l, const tk_place *at, tk_normalize *apply);
        tk_normalize *apply;
    } known[] = {
        {"Sequence", load_normalizers, NULL},
        {"BertNormalizer", load_bert, NULL},
        {"NFC", load_form, NULL},
        {"NFD", load_form, NULL},
        {"NFKC", load_form, NULL},
        {"NFKD", load_form, NULL},
        {"Lowercase", load_simple, weft__tk_lower},
        {"StripAccents", load_simple, weft__tk_drop_marks},
        {"Nmt", load_simple, weft__tk_nmt},
        {"ByteLevel", load_simple, weft__tk_level},
        {"Strip", load_strip, weft__tk_strip},
        {"Replace", load_replace, weft__tk_replace},
        {"Prepend", load_prepend, weft__tk_prepend},
        {"Precompiled", load_precompiled, weft__tk_map_characters},
    };
    if (!at->json || l->status != WEFT_OK) return;
    const char *type = weft__tk_type(l, at);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].type, type) != 0) continue;
        known[i].load(l, at, known[i].apply);
        return;
    }
    weft__tk_refuse(l, at, "is an unsupported normaliser: %s", type);
}

/* ---- Pre-tokenisers ---- */

static tk_splitter *add_splitter(tk_loader *l, tk_split *apply, bool (*is_match)(uint32_t c),
                                 tk_behavior behavior)
{
    tk_state *s = l->state;
    if (!weft__tk_grow(l, &s->splitters, s->n_splitters, sizeof *s->splitters)) return NULL;
    tk_splitter *one = &s->splitters[s->n_splitters++];
    *one = (tk_splitter){.apply = apply, .is_match = is_match, .behavior = behavior};
    return one;
}

static tk_behavior load_behavior(tk_loader *l, const tk_place *at, const char *fallback)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const char *name = weft__tk_string(l, at, "behavior", fallback);
    for (int i = 0; i < 5; i++)
        if (!strcmp(names[i], name)) return (tk_behavior)i;
    const tk_place behavior = weft__tk_member(at, "behavior");
    weft__tk_refuse(l, &behavior, "is '%s', which is unsupported", name);
    return TK_REMOVED;
}

static void load_byte_level(tk_loader *l, const tk_place *at)
{
    char why[160];
    tk_splitter *one = add_splitter(l, weft__tk_split_level, NULL, TK_ISOLATED);
    if (!one) return;
    one->prefix_space = weft__tk_bool(l, at, "add_prefix_space", true);
    one->use_regex = weft__tk_bool(l, at, "use_regex", true);
    one->pattern = weft__tk_regex_new(weft__tk_gpt2_pattern, true, why);
    if (!one->pattern) weft__tk_no_memory(l);
}

static void load_split(tk_loader *l, const tk_place *at)
{
    tk_splitter *one = add_splitter(l, weft__tk_split_pattern, NULL, TK_REMOVED);
    if (!one) return;
    one->pattern = weft__tk_pattern(l, at);
    one->behavior = load_behavior(l, at, NULL);
    one->invert = weft__tk_bool(l, at, "invert", false);
}

static void load_bert_splitter(tk_loader *l, const tk_place *at)
{
    (void)at;
    add_splitter(l, weft__tk_split_pattern, weft__tk_is_space, TK_REMOVED);
    add_splitter(l, weft__tk_split_pattern, weft__tk_is_punctuation, TK_ISOLATED);
}

/* \w+|[^\w\s]+ */
static void load_whitespace(tk_loader *l, const tk_place *at)
{
    (void)at;
    add_splitter(l, weft__tk_split_pattern, weft__tk_is_space, TK_REMOVED);
    add_splitter(l, weft__tk_split_pattern, weft__tk_is_word, TK_CONTIGUOUS);
}

static void load_whitespace_split(tk_loader *l, const tk_place *at)
{
    (void)at;
    add_splitter(l, weft__tk_split_pattern, weft__tk_is_space, TK_REMOVED);
}

static void load_digits(tk_loader *l, const tk_place *at)
{
    add_splitter(l, weft__tk_split_pattern, weft__tk_is_number,
                 weft__tk_bool(l, at, "individual_digits", false) ? TK_ISOLATED : TK_CONTIGUOUS);
}

static void load_punctuation(tk_loader *l, const tk_place *at)
{
    add_splitter(l, weft__tk_split_pattern, weft__tk_is_punctuation,
                 load_behavior(l, at, "Isolated"));
}

/* A splitter with a text as its pattern. */
static tk_splitter *add_text(tk_loader *l, tk_split *apply, const char *text, tk_behavior behavior)
{
    char why[160];
    tk_splitter *one = add_splitter(l, apply, NULL, behavior);
    if (!one) return NULL;
    one->pattern = weft__tk_regex_new(text, false, why);
    if (!one->pattern) weft__tk_no_memory(l);
    return one->pattern ? one : NULL;
}

static void load_delimiter(tk_loader *l, const tk_place *at)
{
    weft__tk_character(l, at, "delimiter", NULL);
    add_text(l, weft__tk_split_pattern, weft__tk_string(l, at, "delimiter", NULL), TK_REMOVED);
}

tk_prepend weft__tk_load_prepend(tk_loader *l, const tk_place *at)
{
    const bool add = weft__tk_bool(l, at, "add_prefix_space", true);
    const char *name = weft__tk_string(l, at, "prepend_scheme", add ? "always" : "never");
    if (!strcmp(name, "always")) return TK_PREPEND_ALWAYS;
    if (!strcmp(name, "first")) return TK_PREPEND_FIRST;
    if (strcmp(name, "never") != 0) {
        const tk_place scheme = weft__tk_member(at, "prepend_scheme");
        weft__tk_refuse(l, &scheme, "is '%s'; expected always, first or never", name);
    }
    return TK_PREPEND_NEVER;
}

static void load_metaspace(tk_loader *l, const tk_place *at)
{
    const uint32_t c = weft__tk_character(l, at, "replacement", "\xE2\x96\x81");
    char text[8] = "";
    if (l->status != WEFT_OK) return;
    text[weft__tk_encode(c, text)] = 0;
    tk_splitter *one = add_text(l, weft__tk_split_metaspace, text, TK_MERGED_WITH_NEXT);
    if (!one) return;
    memcpy(one->replacement, text, sizeof text);
    one->prepend = weft__tk_load_prepend(l, at);
    one->split = weft__tk_bool(l, at, "split", true);
}

static void load_splitters(tk_loader *l, const tk_place *at)
{
    const tk_place list = weft__tk_member(at, "pretokenizers");
    size_t n, i = 0;
    for (const cJSON *c = weft__tk_array(l, &list, true, &n); c; c = c->next, i++) {
        const tk_place one = {&list, NULL, i, c};
        weft__tk_load_splitter(l, &one);
    }
}

void weft__tk_load_splitter(tk_loader *l, const tk_place *at)
{
    static const struct {
        const char *type;
        void (*load)(tk_loader *l, const tk_place *at);
    } known[] = {
        {"Sequence", load_splitters},
        {"ByteLevel", load_byte_level},
        {"Split", load_split},
        {"BertPreTokenizer", load_bert_splitter},
        {"Whitespace", load_whitespace},
        {"WhitespaceSplit", load_whitespace_split},
        {"Digits", load_digits},
        {"Punctuation", load_punctuation},
        {"CharDelimiterSplit", load_delimiter},
        {"Metaspace", load_metaspace},
    };
    if (!at->json || l->status != WEFT_OK) return;
    const char *type = weft__tk_type(l, at);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].type, type) != 0) continue;
        known[i].load(l, at);
        return;
    }
    weft__tk_refuse(l, at, "is an unsupported pre-tokeniser: %s", type);
}
