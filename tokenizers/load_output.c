/* Post-processors and decoders of a tokenizer.json. */
#include "decode.h"
#include "load.h"

#include <stdlib.h>
#include <string.h>

/* ---- Post-processors ---- */

static tk_processor *add_processor(tk_loader *l)
{
    tk_state *s = l->state;
    if (!weft__tk_grow(l, &s->processors, s->n_processors, sizeof *s->processors)) return NULL;
    tk_processor *p = &s->processors[s->n_processors++];
    *p = (tk_processor){.trims = false};
    return p;
}

static void load_byte_level(tk_loader *l, const tk_place *at)
{
    tk_processor *p = add_processor(l);
    if (!p) return;
    p->trims = weft__tk_bool(l, at, "trim_offsets", true);
    p->prefix_space = weft__tk_bool(l, at, "add_prefix_space", true);
}

static int32_t load_id(tk_loader *l, const tk_place *at)
{
    return (int32_t)weft__tk_integer(l, at, (int64_t)l->state->model.vocabulary.size - 1);
}

/* The ids of a special token of a template. */
static void load_ids(tk_loader *l, const tk_place *tokens, const char *name, tk_part *part)
{
    const tk_place token = weft__tk_member(tokens, name), ids = weft__tk_member(&token, "ids");
    size_t i = 0;
    const cJSON *c = weft__tk_array(l, &ids, true, &part->n_ids);
    part->ids = weft__tk_alloc(l, part->n_ids, sizeof *part->ids);
    for (; c && part->ids; c = c->next, i++) {
        const tk_place id = {&ids, NULL, i, c};
        part->ids[i] = load_id(l, &id);
    }
}

static void load_part(tk_loader *l, const tk_place *at, const tk_place *tokens, tk_part *part)
{
    const tk_place sequence = weft__tk_member(at, "Sequence"),
                   special = weft__tk_member(at, "SpecialToken");
    const tk_place *one = sequence.json ? &sequence : &special;
    if (!cJSON_IsObject(one->json)) {
        weft__tk_refuse(l, at, "must be a Sequence or a SpecialToken");
        return;
    }
    const tk_place type = weft__tk_member(one, "type_id"), id = weft__tk_member(one, "id");
    const char *name = weft__tk_string(l, one, "id", NULL);
    part->type = type.json ? (int32_t)weft__tk_integer(l, &type, INT32_MAX) : 0;
    part->source = -1;
    if (one == &special)
        load_ids(l, tokens, name, part);
    else if (!strcmp(name, "A") || !strcmp(name, "B"))
        part->source = *name == 'B';
    else
        weft__tk_refuse(l, &id, "must be A or B");
}

static void load_template(tk_loader *l, const tk_place *at, const char *name, tk_template *t,
                          int sources)
{
    const tk_place list = weft__tk_member(at, name), tokens = weft__tk_member(at, "special_tokens");
    size_t i = 0, n;
    const cJSON *c = weft__tk_array(l, &list, true, &n);
    t->parts = weft__tk_alloc(l, n, sizeof *t->parts);
    for (; c && t->parts && l->status == WEFT_OK; c = c->next, i++) {
        const tk_place part = {&list, NULL, i, c};
        t->n = i + 1;
        load_part(l, &part, &tokens, &t->parts[i]);
        if (t->parts[i].source >= sources) weft__tk_refuse(l, &part, "needs a pair of texts");
    }
}

static void load_templates(tk_loader *l, const tk_place *at)
{
    tk_processor *p = add_processor(l);
    if (!p) return;
    p->has_template = true;
    load_template(l, at, "single", &p->single, 1);
    load_template(l, at, "pair", &p->pair, 2);
}

/* The id of ["[SEP]", 102]. */
static int32_t load_named_id(tk_loader *l, const tk_place *at, const char *name)
{
    const tk_place pair = weft__tk_member(at, name);
    size_t n;
    const cJSON *c = weft__tk_array(l, &pair, true, &n);
    const tk_place id = {&pair, NULL, 1, n == 2 ? c->next : NULL};
    return load_id(l, &id);
}

static tk_part special(tk_loader *l, int32_t id, int32_t type)
{
    tk_part part = {.source = -1, .n_ids = 1, .type = type};
    part.ids = weft__tk_alloc(l, 1, sizeof *part.ids);
    if (part.ids)
        part.ids[0] = id;
    else
        part.n_ids = 0;
    return part;
}

/* CLS A SEP, and CLS A SEP B SEP, or CLS A SEP SEP B SEP in RoBERTa, where all types are 0. */
static void load_bert(tk_loader *l, const tk_place *at, bool roberta)
{
    const int32_t cls = load_named_id(l, at, "cls"), sep = load_named_id(l, at, "sep");
    const int32_t second = roberta ? 0 : 1;
    tk_processor *p = add_processor(l);
    if (!p) return;
    p->has_template = true;
    p->single.parts = weft__tk_alloc(l, 3, sizeof *p->single.parts);
    p->pair.parts = weft__tk_alloc(l, 6, sizeof *p->pair.parts);
    if (!p->single.parts || !p->pair.parts) return;
    tk_part *one = p->single.parts, *two = p->pair.parts;
    p->single.n = 3;
    one[0] = special(l, cls, 0);
    one[1] = (tk_part){.source = 0};
    one[2] = special(l, sep, 0);
    two[p->pair.n++] = special(l, cls, 0);
    two[p->pair.n++] = (tk_part){.source = 0};
    two[p->pair.n++] = special(l, sep, 0);
    if (roberta) two[p->pair.n++] = special(l, sep, 0);
    two[p->pair.n++] = (tk_part){.source = 1, .type = second};
    two[p->pair.n++] = special(l, sep, second);
    if (!roberta) return;
    p->trims = weft__tk_bool(l, at, "trim_offsets", true);
    p->prefix_space = weft__tk_bool(l, at, "add_prefix_space", true);
}

void weft__tk_load_processor(tk_loader *l, const tk_place *at)
{
    if (!at->json || l->status != WEFT_OK) return;
    const char *type = weft__tk_type(l, at);
    const tk_place list = weft__tk_member(at, "processors");
    size_t n, i = 0;
    if (!strcmp(type, "ByteLevel")) {
        load_byte_level(l, at);
    } else if (!strcmp(type, "TemplateProcessing")) {
        load_templates(l, at);
    } else if (!strcmp(type, "BertProcessing") || !strcmp(type, "RobertaProcessing")) {
        load_bert(l, at, type[0] == 'R');
    } else if (!strcmp(type, "Sequence")) {
        for (const cJSON *c = weft__tk_array(l, &list, true, &n); c; c = c->next, i++) {
            const tk_place one = {&list, NULL, i, c};
            weft__tk_load_processor(l, &one);
        }
    } else {
        weft__tk_refuse(l, at, "is an unsupported post-processor: %s", type);
    }
}

/* ---- Decoders ---- */

static tk_decoder *add_decoder(tk_loader *l, tk_decode *apply)
{
    tk_state *s = l->state;
    if (!weft__tk_grow(l, &s->decoders, s->n_decoders, sizeof *s->decoders)) return NULL;
    tk_decoder *d = &s->decoders[s->n_decoders++];
    *d = (tk_decoder){.apply = apply};
    return d;
}

static void load_plain(tk_loader *l, const tk_place *at, tk_decoder *d)
{
    (void)l, (void)at, (void)d;
}

static void load_wordpiece(tk_loader *l, const tk_place *at, tk_decoder *d)
{
    d->prefix = weft__tk_string_copy(l, at, "prefix", "##");
    d->cleanup = weft__tk_bool(l, at, "cleanup", true);
}

static void load_metaspace(tk_loader *l, const tk_place *at, tk_decoder *d)
{
    d->character = weft__tk_character(l, at, "replacement", "\xE2\x96\x81");
    d->keeps_first = weft__tk_load_prepend(l, at) == TK_PREPEND_NEVER;
}

static void load_strip(tk_loader *l, const tk_place *at, tk_decoder *d)
{
    const tk_place start = weft__tk_member(at, "start"), stop = weft__tk_member(at, "stop");
    d->character = weft__tk_character(l, at, "content", NULL);
    d->start = (size_t)weft__tk_integer(l, &start, INT32_MAX);
    d->stop = (size_t)weft__tk_integer(l, &stop, INT32_MAX);
}

static void load_replace(tk_loader *l, const tk_place *at, tk_decoder *d)
{
    d->pattern = weft__tk_pattern(l, at);
    d->prefix = weft__tk_string_copy(l, at, "content", NULL);
}

static void load_bpe(tk_loader *l, const tk_place *at, tk_decoder *d)
{
    d->prefix = weft__tk_string_copy(l, at, "suffix", "</w>");
}

void weft__tk_load_decoder(tk_loader *l, const tk_place *at)
{
    static const struct {
        const char *type;
        void (*load)(tk_loader *l, const tk_place *at, tk_decoder *d);
        tk_decode *apply;
    } known[] = {
        {"ByteLevel", load_plain, weft__tk_decode_level},
        {"WordPiece", load_wordpiece, weft__tk_decode_wordpiece},
        {"Metaspace", load_metaspace, weft__tk_decode_metaspace},
        {"ByteFallback", load_plain, weft__tk_decode_fallback},
        {"Fuse", load_plain, weft__tk_decode_fuse},
        {"Strip", load_strip, weft__tk_decode_strip},
        {"Replace", load_replace, weft__tk_decode_replace},
        {"BPEDecoder", load_bpe, weft__tk_decode_bpe},
    };
    const tk_place list = weft__tk_member(at, "decoders");
    size_t n, k = 0;
    if (!at->json || l->status != WEFT_OK) return;
    const char *type = weft__tk_type(l, at);
    if (!strcmp(type, "Sequence")) {
        for (const cJSON *c = weft__tk_array(l, &list, true, &n); c; c = c->next, k++) {
            const tk_place one = {&list, NULL, k, c};
            weft__tk_load_decoder(l, &one);
        }
        return;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].type, type) != 0) continue;
        tk_decoder *d = add_decoder(l, known[i].apply);
        if (d) known[i].load(l, at, d);
        return;
    }
    weft__tk_refuse(l, at, "is an unsupported decoder: %s", type);
}
