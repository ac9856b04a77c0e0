/* Splits C text into items, and writes those that are used. See items.h. O(text): each name in an item is
 * looked up in a table. */
#include "items.h"

#include "base/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool is_letter(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* ---- Finding ---- */

static emit_item *find(const emit_items *all, const char *name)
{
    const size_t *number = weft__name_table_find(&all->numbers, name);
    return number ? &all->items[*number] : NULL;
}

/* What functions of libm are called that weft has. */
#define OWN "plain_"
enum { OWN_LENGTH = sizeof OWN - 1 };

/* Whether the item is a text for EMIT_HALVES alone. */
static bool is_of_halves(const emit_item *item)
{
    const size_t n = strlen("_halves"), length = item->length[0];
    return length > n && !memcmp(item->name[0] + length - n, "_halves", n);
}

static bool is_name_of(const emit_item *item, const char *name, size_t length)
{
    for (size_t k = 0; k < item->n_names; k++)
        if (item->length[k] == length && !memcmp(item->name[k], name, length)) return true;
    return false;
}

/* The item that a name means for the dtype. *as: the dtype whose suffix it is written with; with
 * AS_IT_STANDS there is none. A function of libm that weft has is written as weft's. */
#define AS_IT_STANDS ((weft_dtype)(EMIT_HALVES + 1))
/* After the name of a second text, which has no vectors. */
#define SECOND '@'
static emit_item *meaning(const emit_items *all, const char *name, size_t length, weft_dtype dtype,
                          weft_dtype *as)
{
    char text[OWN_LENGTH + EMIT_MAX_NAME + 16] = OWN, *own = text + OWN_LENGTH;
    *as = AS_IT_STANDS;
    if (length > EMIT_MAX_NAME) return NULL;
    memcpy(own, name, length);
    weft__text_format(own + length, 16, "_%s", weft__emit_suffix(dtype));
    emit_item *item = find(all, own);
    if (!item && dtype == EMIT_HALVES) {
        weft__text_format(own + length, 16, "%c", SECOND);
        emit_item *second = find(all, own);
        own[length] = 0;
        item = find(all, own);
        if (second && (!item || !item->halves)) item = second;
        if (!item || !item->halves) return meaning(all, name, length, WEFT_F32, as);
    }
    own[length] = 0;
    if (!item) {
        item = find(all, own);
        if (item && !item->generic) return item;
    }
    if (!item) item = find(all, text);
    if (item) *as = dtype;
    return item;
}

/* The same in the text of an item; NAME in NAME_halves is that of f32. */
static emit_item *meaning_in(const emit_items *all, const emit_item *item, const char *name,
                             size_t length, weft_dtype dtype, weft_dtype *as)
{
    emit_item *other = meaning(all, name, length, dtype, as);
    if (other != item || dtype != EMIT_HALVES || length == item->length[0]) return other;
    return is_of_halves(item) ? meaning(all, name, length, WEFT_F32, as) : other;
}

/* ---- Walking through the names of a text ---- */

size_t weft__emit_next_name(const char *text, size_t n, size_t *at)
{
    while (*at < n) {
        const char c = text[*at];
        if (c == '"' || c == '\'') {
            for (++*at; *at < n && text[*at] != c; ++*at)
                if (text[*at] == '\\') ++*at;
            ++*at;
        } else if (isdigit((unsigned char)c)) { /* a number and its suffix */
            while (*at < n && (is_letter(text[*at]) || text[*at] == '.')) ++*at;
        } else if (is_letter(c)) {
            size_t length = 1;
            while (*at + length < n && is_letter(text[*at + length])) length++;
            return length;
        } else if (c == '/' && *at + 1 < n && text[*at + 1] == '*') {
            const char *end = strstr(text + *at, "*/");
            *at = end && (size_t)(end - text) < n ? (size_t)(end - text) + 2 : n;
        } else {
            ++*at;
        }
    }
    return 0;
}

/* ---- Splitting ---- */

static emit_item *append(emit_items *all)
{
    if (all->n == all->room) {
        const size_t room = 2 * all->room + 64;
        emit_item *grown = realloc(all->items, room * sizeof *grown);
        if (!grown) {
            all->failed = true;
            return NULL;
        }
        all->items = grown;
        all->room = room;
    }
    all->items[all->n] = (emit_item){0};
    return &all->items[all->n];
}

static void add_name(emit_item *item, const char *name, size_t length)
{
    if (item->n_names == EMIT_MAX_NAMES || !length || length > EMIT_MAX_NAME) return;
    item->name[item->n_names] = name;
    item->length[item->n_names++] = length;
}

/* Name k of an item, and a letter after it, as a text of its own; NULL: no memory. */
static const char *text_of(emit_items *all, const emit_item *item, size_t k, char end)
{
    char text[EMIT_MAX_NAME + 2];
    const size_t n = item->length[k];
    memcpy(text, item->name[k], n);
    text[n] = end;
    text[n + 1] = 0;
    return weft__arena_text(&all->memory, text);
}

/* Puts the last item into the list, under SECOND if there is one of its name with another text. False:
 * there is. */
static bool join(emit_items *all)
{
    const emit_item *item = &all->items[all->n];
    if (!item->n_names) return true;
    const char *first = text_of(all, item, 0, 0), *second = NULL;
    const emit_item *old = first ? find(all, first) : NULL;
    if (old && old->n == item->n && !memcmp(old->text, item->text, item->n)) return true;
    if (old) second = text_of(all, item, 0, SECOND);
    if (second && find(all, second)) return false;
    for (size_t k = 0; k < (old ? 1 : item->n_names); k++) {
        const char *name = old ? second : text_of(all, item, k, 0);
        if (!name || !weft__name_table_put(&all->numbers, name, all->n)) all->failed = true;
    }
    all->n++;
    return !old;
}

/* The name of a declaration: of a macro the word after #define; else the one before the first
 * parenthesis or attribute, or, unless it is a type, bracket or equals sign; without these the last
 * word. */
static void name_declaration(emit_item *item, const char *text, size_t n)
{
    size_t at = 0, length, last = 0, last_length = 0;
    const bool macro = !strncmp(text, "#define", 7), type = !strncmp(text, "typedef", 7);
    if (macro) at = 7;
    while ((length = weft__emit_next_name(text, n, &at))) {
        if (length == 13 && !memcmp(text + at, "__attribute__", 13) && last_length) break;
        last = at;
        last_length = length;
        at += length;
        if (macro) break;
        while (at < n && text[at] == ' ') at++;
        if (text[at] == '(' || (!type && (text[at] == '[' || text[at] == '='))) break;
    }
    add_name(item, text + last, last_length);
}

/* The length of the line at `text`, with its end. */
static size_t line_length(const char *text)
{
    const char *end = strchr(text, '\n');
    return end ? (size_t)(end - text) + 1 : strlen(text);
}

/* The length of the declaration that begins at `text`. Braces in quotes ('{') do not count. */
static size_t declaration_length(const char *text)
{
    size_t n = 0;
    int depth = 0;
    const bool macro = *text == '#';
    while (text[n]) {
        const size_t length = line_length(text + n);
        size_t last = n + length;
        for (size_t i = n; i < n + length; i++)
            if (!i || text[i - 1] != '\'') depth += (text[i] == '{') - (text[i] == '}');
        while (last > n && isspace((unsigned char)text[last - 1])) last--;
        n += length;
        const char end = last ? text[last - 1] : 0;
        if (macro ? end != '\\' : depth == 0 && (end == ';' || end == '}')) break;
    }
    return n;
}

/* The length of a block from #if to its #endif. */
static size_t block_length(const char *text)
{
    size_t n = 0;
    int depth = 0;
    while (text[n]) {
        depth += !strncmp(text + n, "#if", 3);
        const bool ends = !strncmp(text + n, "#endif", 6) && --depth == 0;
        n += line_length(text + n);
        if (ends) break;
    }
    return n;
}

/* The names of all declarations in a block. */
static void name_block(emit_item *item, const char *text, size_t n)
{
    for (size_t at = 0; at < n;) {
        const char *line = text + at;
        const size_t one_line = line_length(line);
        if (*line == '\n') {
            at++;
        } else if (!strncmp(line, "#if", 3) || !strncmp(line, "#el", 3) ||
                   !strncmp(line, "#endif", 6)) {
            at += one_line < 2 || line[one_line - 2] != '\\' ? one_line : declaration_length(line);
        } else if (!strncmp(line, "/*", 2)) {
            const char *end = strstr(line, "*/");
            at = end ? (size_t)(end - text) + 2 : n;
            at += line_length(text + at);
        } else {
            const size_t length = declaration_length(line);
            emit_item one = {0};
            name_declaration(&one, line, length);
            bool known = false;
            for (size_t k = 0; k < item->n_names; k++)
                known |= item->length[k] == one.length[0] &&
                         !memcmp(item->name[k], one.name[0], one.length[0]);
            if (one.n_names && !known) add_name(item, one.name[0], one.length[0]);
            at += length;
        }
    }
}

static bool split(emit_items *all, const char *text)
{
    bool same = true;
    const char *begin = NULL; /* of the comment above the next declaration */
    while (*text) {
        if (!strncmp(text, "/*", 2)) {
            const char *end = strstr(text, "*/");
            if (!begin) begin = text;
            if (!end) break;
            text = end + 2;
            text += line_length(text);
            if (*text == '\n') begin = NULL; /* a comment on what follows, not on a declaration */
            continue;
        }
        if (*text == '\n' || *text == ' ' || !strncmp(text, "#include", 8)) {
            begin = NULL;
            text += line_length(text);
            continue;
        }
        emit_item *item = append(all);
        if (!item) break;
        const bool block = !strncmp(text, "#if", 3);
        const size_t n = block ? block_length(text) : declaration_length(text);
        (block ? name_block : name_declaration)(item, text, n);
        item->text = begin ? begin : text;
        item->n = (size_t)(text - item->text) + n;
        begin = NULL;
        text += n;
        same = join(all) && same;
    }
    return same;
}

static bool needs_type(const emit_items *all, const emit_item *item)
{
    if (is_of_halves(item)) return false;
    for (size_t at = 0, length; (length = weft__emit_next_name(item->text, item->n, &at));
         at += length) {
        weft_dtype as;
        const char *name = item->text + at;
        if (length == 1 && *name == 'T') return true;
        const emit_item *other = meaning(all, name, length, WEFT_F32, &as);
        if (other && other != item && as != AS_IT_STANDS &&
            strncmp(other->name[0], OWN, OWN_LENGTH) != 0)
            return true;
    }
    return false;
}

static bool needs_halves(const emit_items *all, const emit_item *item)
{
    for (size_t at = 0, length; (length = weft__emit_next_name(item->text, item->n, &at));
         at += length) {
        const char *name = item->text + at;
        weft_dtype as;
        if (is_name_of(item, name, length)) continue;
        (void)meaning(all, name, length, EMIT_HALVES, &as);
        if (as == EMIT_HALVES) return true;
    }
    return false;
}

/* Finds out which of the items from `first` on are generic, and, if the text has some for halves, which
 * ones EMIT_HALVES changes. */
static void mark(emit_items *all, size_t first, const char *text)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = first; i < all->n; i++)
            if (!all->items[i].generic && needs_type(all, &all->items[i]))
                all->items[i].generic = changed = true;
    }
    for (bool changed = strstr(text, "_halves") != NULL; changed;) {
        changed = false;
        for (size_t i = 0; i < all->n; i++)
            if (all->items[i].generic && !all->items[i].halves && needs_halves(all, &all->items[i]))
                all->items[i].halves = changed = true;
    }
}

bool weft__emit_items_add(emit_items *all, const char *text)
{
    const size_t n = strlen(text) + 1, first = all->n;
    char **texts = realloc(all->texts, (all->n_texts + 1) * sizeof *texts);
    if (texts) all->texts = texts;
    char *copy = texts ? malloc(n) : NULL;
    if (!copy) {
        all->failed = true;
        return true;
    }
    memcpy(copy, text, n);
    all->texts[all->n_texts++] = copy;
    const bool same = split(all, copy);
    if (all->n == first) { /* nothing points into the copy */
        free(copy);
        all->n_texts--;
    } else {
        mark(all, first, copy);
    }
    return same;
}

/* ---- Writing ---- */

/* Writes a text with the names that it has for a dtype; comments too. */
static void write_renamed(const emit_items *all, const emit_item *item, weft_dtype dtype,
                          emit_text *to)
{
    size_t done = 0;
    for (size_t at = 0, length; (length = weft__emit_next_name(item->text, item->n, &at));
         at += length) {
        weft_dtype as;
        const char *name = item->text + at;
        const bool type = length == 1 && *name == 'T';
        const emit_item *other = meaning_in(all, item, name, length, dtype, &as);
        if (!type && !(other && as != AS_IT_STANDS && (item->generic || other != item))) continue;
        weft__emit_text_add(to, item->text + done, at - done);
        const bool libm = other && !strncmp(other->name[0], OWN, OWN_LENGTH) && *name != 'p';
        if (type)
            weft__emit_text_print(to, "%s", weft__emit_type(dtype));
        else if (libm)
            weft__emit_text_print(to, OWN "%.*s", (int)length, name);
        else
            weft__emit_text_print(to, "%.*s_%s", (int)length, name, weft__emit_suffix(as));
        done = at + length;
    }
    weft__emit_text_add(to, item->text + done, item->n - done);
}

static void write_item(emit_items *all, emit_item *item, weft_dtype dtype, emit_text *to)
{
    bool *written = &item->written[item->generic ? dtype : 0];
    if (*written) return;
    *written = true;
    all->doubles |= item->generic && dtype == WEFT_F64;
    for (size_t at = 0, length; (length = weft__emit_next_name(item->text, item->n, &at));
         at += length) {
        weft_dtype as;
        all->doubles |= length == 6 && !memcmp(item->text + at, "double", length) &&
                        !is_name_of(item, "wide_float", 10);
        emit_item *other = meaning_in(all, item, item->text + at, length, dtype, &as);
        if (other && other != item) write_item(all, other, as == AS_IT_STANDS ? dtype : as, to);
    }
    write_renamed(all, item, dtype, to);
    weft__emit_text_add(to, "\n", 1);
}

bool weft__emit_items_write(emit_items *all, const char *name, weft_dtype dtype, emit_text *to)
{
    weft_dtype as;
    emit_item *item = meaning(all, name, strlen(name), dtype, &as);
    if (item) write_item(all, item, as == AS_IT_STANDS ? dtype : as, to);
    return item != NULL;
}

const char *weft__emit_items_name(const emit_items *all, const char *name, weft_dtype dtype,
                                  char *buffer, size_t size)
{
    weft_dtype as;
    meaning(all, name, strlen(name), dtype, &as);
    weft__text_format(buffer, size, as != AS_IT_STANDS ? "%s_%s" : "%s", name,
                      weft__emit_suffix(as));
    return buffer;
}

const char *weft__emit_items_text(const emit_items *all, const char *name, weft_dtype dtype,
                                  size_t *n)
{
    weft_dtype as;
    const emit_item *item = meaning(all, name, strlen(name), dtype, &as);
    if (item) *n = item->n;
    return item ? item->text : NULL;
}

void weft__emit_items_free(emit_items *all)
{
    for (size_t i = 0; i < all->n_texts; i++) free(all->texts[i]);
    weft__name_table_free(&all->numbers);
    weft__arena_free(&all->memory);
    free(all->texts);
    free(all->items);
    *all = (emit_items){0};
}
