/* Shapes: structs of ints, which functions read arrays of the file as. A member that has one value in all arrays
 * becomes a constant in the functions, and leaves the struct and the arrays. So functions for any shape become
 * functions for the shapes that the file has, and compilers drop loops and tests. The other members get the smallest
 * type for their values, and the arrays become objects of the struct. O(text) for each struct. */
#include "emit.h"

#include "base/text.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MEMBERS = 64, WIDTHS = 3, MAX_INTS = 256, MAX_VARIABLES = 16, NAME_BYTES = 64 };

typedef struct piece {
    const char *at;
    size_t n;
} piece;

typedef struct member {
    piece name;
    int first, count; /* ints */
    bool is_array, needed;
    bool points; /* a pointer to its ints is needed: they stay ints */
    int width;   /* of its type: in `types` */
} member;

/* A struct, and the values of its ints. */
typedef struct shape {
    char name[NAME_BYTES];
    piece declaration;
    member members[MAX_MEMBERS];
    int n_members, n_ints;
    long long value[MAX_INTS], least[MAX_INTS], most[MAX_INTS];
    bool same[MAX_INTS]; /* in all arrays */
    bool fails;          /* something else is done with the struct than reading its members */
} shape;

/* Variables that point to the struct, in a function or in another struct. */
typedef struct variables {
    piece name[MAX_VARIABLES];
    bool used[MAX_VARIABLES];
    int n;
} variables;

static bool is_piece(piece a, const char *at, size_t n)
{
    return a.n == n && !memcmp(a.at, at, n);
}

static bool is_letter(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static size_t name_length(const char *at)
{
    size_t n = 0;
    while (is_letter(at[n])) n++;
    return n;
}

/* Whether `word` stands right before `at` in a text that begins at `text`. */
static bool stands_before(const char *text, const char *at, const char *word)
{
    const size_t n = strlen(word);
    return (size_t)(at - text) >= n && !memcmp(at - n, word, n);
}

/* ---- The struct of a function ---- */

/* What a function casts its array to: "(const NAME *)(const void *)". */
void weft__emit_shape_name(const char *text, size_t n, char *name, size_t size)
{
    static const char cast[] = " *)(const void *)";
    const char *found = strstr(text, cast), *begin = found;
    *name = 0;
    if (!found || found > text + n) return;
    while (begin > text && is_letter(begin[-1])) begin--;
    if (!stands_before(text, begin, "(const ") || (size_t)(found - begin) >= size) return;
    memcpy(name, begin, (size_t)(found - begin));
    name[found - begin] = 0;
}

/* The members of a struct whose members are all ints. */
static bool find_members(shape *s, const char *text)
{
    char begin[NAME_BYTES + 32], end[NAME_BYTES + 32];
    weft__text_format(begin, sizeof begin, "typedef struct %s {\n", s->name);
    weft__text_format(end, sizeof end, "} %s;\n", s->name);
    const char *from = strstr(text, begin), *to = from ? strstr(from, end) : NULL;
    if (!to) return false;
    s->declaration = (piece){from, (size_t)(to - from) + strlen(end)};
    size_t at = strlen(begin), length;
    const size_t n = (size_t)(to - from);
    for (bool typed = false; (length = weft__emit_next_name(from, n, &at)); at += length) {
        const char *name = from + at;
        if (!typed || !memcmp(name, "int ", 4)) {
            if (memcmp(name, "int ", 4) != 0) return false;
            typed = true;
            continue;
        }
        if (s->n_members == MAX_MEMBERS) return false;
        member *m = &s->members[s->n_members++];
        *m = (member){.name = {name, length}, .first = s->n_ints, .count = 1};
        m->is_array = name[length] == '[';
        if (m->is_array) m->count = (int)strtol(name + length + 1, NULL, 10);
        if (m->count < 1) return false;
        s->n_ints += m->count;
        if (s->n_ints > MAX_INTS) return false;
    }
    return s->n_members > 0;
}

/* Compares another array with the first one. False: it is not one of the struct. */
static bool compare_array(shape *s, const char *numbers, bool first)
{
    for (int i = 0; i < s->n_ints; i++) {
        char *end;
        const long long x = strtoll(numbers, &end, 10);
        if (end == numbers) return false;
        if (first) s->value[i] = x;
        s->same[i] = first || (s->same[i] && s->value[i] == x);
        if (first || x < s->least[i]) s->least[i] = x;
        if (first || x > s->most[i]) s->most[i] = x;
        numbers = *end == ',' ? end + 1 : end;
    }
    return !*numbers;
}

/* ---- Functions ---- */

static int variable_of(const variables *v, const char *at, size_t n)
{
    for (int i = 0; i < v->n; i++)
        if (is_piece(v->name[i], at, n)) return i;
    return -1;
}

/* The name of the struct stands at text + at: "const NAME *variable" adds a variable, and a cast adds none. */
static void take_type(shape *s, const char *text, size_t at, size_t length, variables *v)
{
    const char *after = text + at + length;
    if (!stands_before(text, text + at, "const ") || memcmp(after, " *", 2) != 0) {
        s->fails = true;
        return;
    }
    const piece name = {after + 2, name_length(after + 2)};
    if (!name.n && after[2] == ')') return;
    if (!name.n || v->n == MAX_VARIABLES)
        s->fails = true;
    else
        v->name[v->n++] = name;
}

/* The end of the brackets that begin at `at`; NULL if what stands in them does more than read. */
static const char *end_of_brackets(const char *at)
{
    int depth = 0;
    for (;; at++) {
        depth += (*at == '[') - (*at == ']');
        if (!*at || !memcmp(at, "++", 2) || !memcmp(at, "--", 2)) return NULL;
        if (!depth) return at + 1;
    }
}

/* "->member" stands at `arrow`, after the variable at `at`. If it is a constant: where it ends, and its value.
 * NULL: it is none, so the struct needs it. The variable is a member of another struct if `inner`: then the
 * member stays, as the expression before it would have to go as well. */
static const char *constant_at(shape *s, const char *text, const char *at, const char *arrow,
                               bool inner, long long *value)
{
    const char *name = arrow + 2, *end = name + name_length(name);
    int k = 0;
    while (k < s->n_members && !is_piece(s->members[k].name, name, (size_t)(end - name))) k++;
    if (k == s->n_members) {
        s->fails = true;
        return NULL;
    }
    member *m = &s->members[k];
    int first = m->first, count = m->count;
    if (m->is_array && *end == '[') {
        const char *digits = end + 1;
        if (isdigit((unsigned char)*digits) && digits[1] == ']') {
            first += *digits - '0';
            count = 1;
            s->fails |= first >= m->first + m->count;
        }
        end = end_of_brackets(end);
    } else if (m->is_array) {
        end = NULL;
        m->points = true;
    }
    bool same = end && !inner;
    for (int i = first; i < first + count && !s->fails; i++)
        same = same && s->same[i] && s->value[i] == s->value[first];
    *value = s->value[first];
    if (!*value && (stands_before(text, at, "/ ") || stands_before(text, at, "% "))) same = false;
    m->needed |= !same;
    return same ? end : NULL;
}

/* Reads a function or another declaration; with `to` also writes it, with constants. `members`: variables
 * that are members of other structs. */
static void read_declaration(shape *s, const char *text, size_t n, variables *members,
                             variables *own, emit_text *to)
{
    const char *type = strstr(text, "typedef struct");
    const bool is_struct = type && type < text + n;
    size_t done = 0;
    own->n = 0;
    memset(own->used, 0, sizeof own->used);
    for (size_t at = 0, length; (length = weft__emit_next_name(text, n, &at)); at += length) {
        const char *name = text + at;
        if (!strncmp(name, s->name, length) && !s->name[length]) {
            take_type(s, text, at, length, is_struct ? members : own);
            continue;
        }
        const bool inner = stands_before(text, name, "->") || stands_before(text, name, ".");
        const int i = variable_of(inner ? members : own, name, length);
        if (i < 0 || is_struct || own->name[i].at == name) continue;
        long long value;
        const char *end = NULL;
        if (!memcmp(name + length, "->", 2))
            end = constant_at(s, text, name, name + length, inner, &value);
        if (!inner && !end) own->used[i] = true;
        if (!end) continue;
        if (to) {
            weft__emit_text_add(to, text + done, at - done);
            weft__emit_text_print(to, value < 0 ? "(%lld)" : "%lld", value);
        }
        done = (size_t)(end - text);
        at = done - length;
    }
    if (to) weft__emit_text_add(to, text + done, n - done);
}

/* Says of variables that a function has no use for that this is meant: after their declaration, or where the
 * function begins. */
static void write_declaration(const emit_text *from, const variables *own, const char *type,
                              emit_text *to)
{
    size_t done = 0;
    for (int i = 0; i < own->n && from->n; i++) {
        char text[2 * NAME_BYTES + 32];
        weft__text_format(text, sizeof text, "const %s *%.*s = ", type, (int)own->name[i].n,
                          own->name[i].at);
        const char *local = strstr(from->text, text), *body = strstr(from->text, "\n{\n");
        const char *at = local ? strstr(local, ";\n") : body ? body + 1 : NULL;
        if (own->used[i] || !at || (size_t)(at - from->text) < done) continue;
        weft__emit_text_add(to, from->text + done, (size_t)(at - from->text) + 2 - done);
        weft__emit_text_print(to, "    (void)%.*s;\n", (int)own->name[i].n, own->name[i].at);
        done = (size_t)(at - from->text) + 2;
    }
    if (from->n) weft__emit_text_add(to, from->text + done, from->n - done);
    to->failed |= from->failed;
}

/* Types of members, the widest first. */
static const struct {
    const char *name;
    long long least, most;
} types[WIDTHS] = {{"int", -INT_MAX, INT_MAX}, {"int16_t", -32767, 32767}, {"uint8_t", 0, 255}};

/* Chooses the types of members. Zeros at the end of the last member are not read where a pointer to it is needed:
 * its other ints say how many there are. */
static void choose_types(shape *s)
{
    for (int k = 0; k < s->n_members; k++) {
        member *m = &s->members[k];
        if (m->points && k == s->n_members - 1)
            while (m->count > 1 && s->same[m->first + m->count - 1] &&
                   !s->value[m->first + m->count - 1])
                m->count--;
        m->width = m->points ? 0 : WIDTHS - 1;
        for (int i = m->first; i < m->first + m->count; i++)
            while (m->width &&
                   (s->most[i] > types[m->width].most || s->least[i] < types[m->width].least))
                m->width--;
    }
}

/* The next member of a width that the struct still needs, from k on; n_members: there is none. */
static int next_of_width(const shape *s, int width, int k)
{
    while (k < s->n_members && (!s->members[k].needed || s->members[k].width != width)) k++;
    return k;
}

/* The struct with the members that it still needs. */
static void write_struct(const shape *s, emit_text *to)
{
    bool none = true;
    weft__emit_text_print(to, "typedef struct %s { /* what differs between calls */\n", s->name);
    for (int width = 0; width < WIDTHS; width++) {
        size_t column = 0;
        for (int k = next_of_width(s, width, 0); k < s->n_members;
             k = next_of_width(s, width, k + 1)) {
            const member *m = &s->members[k];
            const bool full = column > 80;
            if (column)
                weft__emit_text_print(to, full ? ",\n        %.*s" : ", %.*s", (int)m->name.n,
                                      m->name.at);
            else
                weft__emit_text_print(to, "    %s %.*s", types[width].name, (int)m->name.n,
                                      m->name.at);
            if (m->is_array) weft__emit_text_print(to, "[%d]", m->count);
            column = (full ? 8 : column) + m->name.n + 5;
        }
        none = none && !column;
        if (column) weft__emit_text_print(to, ";\n");
    }
    weft__emit_text_print(to, none ? "    int none;\n} %s;\n" : "} %s;\n", s->name);
}

/* How often a text has a name. */
static int times_named(const emit_text *text, piece name)
{
    int times = 0;
    for (size_t at = 0, length; (length = weft__emit_next_name(text->text, text->n, &at));
         at += length)
        times += is_piece(name, text->text + at, length);
    return times;
}

/* Steps alone may call a function that casts its array: else there are arrays that are not known to be the struct. */
static void check_casts(shape *s, const emit_text *functions)
{
    char cast[NAME_BYTES + 32];
    weft__text_format(cast, sizeof cast, "(const %s *)(const void *)", s->name);
    const char *text = functions->text;
    for (const char *at = text; (at = strstr(at, cast)); at++) {
        const char *begin = at;
        while (begin > text && memcmp(begin, "\n{\n", 3) != 0) begin--;
        while (begin > text && memcmp(begin, "\nstatic ", 8) != 0) begin--;
        const char *end = begin + strcspn(begin, "("), *name = end;
        while (name > text && is_letter(name[-1])) name--;
        s->fails |= times_named(functions, (piece){name, (size_t)(end - name)}) != 1;
    }
}

/* Reads all declarations, which end with a line that begins with a brace. */
static void read_all(shape *s, const emit_text *functions, emit_text *to)
{
    variables members = {.n = 0}, own;
    const char *text = functions->text, *end = text + functions->n;
    while (text < end) {
        const char *brace = strstr(text, "\n}"), *line = brace ? strchr(brace + 1, '\n') : NULL;
        const size_t n = (size_t)((line ? line + 1 : end) - text);
        emit_text one = {0};
        if (s->declaration.at >= text && s->declaration.at < text + n) {
            if (to) {
                weft__emit_text_add(to, text, (size_t)(s->declaration.at - text));
                write_struct(s, to);
            }
        } else {
            read_declaration(s, text, n, &members, &own, to ? &one : NULL);
            if (to) write_declaration(&one, &own, s->name, to);
        }
        weft__emit_text_free(&one);
        text += n;
    }
}

/* ---- Arrays ---- */

/* Writes the array as an object of the struct with the members that it still needs. */
static void write_array(const shape *s, const char *numbers, emit_text *to)
{
    long long value[MAX_INTS];
    const char *separator = "";
    for (int i = 0; i < s->n_ints; i++) {
        char *end;
        value[i] = strtoll(numbers, &end, 10);
        numbers = *end == ',' ? end + 1 : end;
    }
    weft__emit_text_print(to, "%s:{", s->name);
    for (int width = 0; width < WIDTHS; width++)
        for (int k = next_of_width(s, width, 0); k < s->n_members;
             k = next_of_width(s, width, k + 1)) {
            const member *m = &s->members[k];
            weft__emit_text_print(to, "%s%s", separator, m->is_array ? "{" : "");
            for (int i = 0; i < m->count; i++)
                weft__emit_text_print(to, i ? ", %lld" : "%lld", value[m->first + i]);
            if (m->is_array) weft__emit_text_print(to, "}");
            separator = ", ";
        }
    weft__emit_text_print(to, *separator ? "}" : "0}");
}

/* The array of a struct: "NAME:1, 2"; NULL if it is another. */
static const char *array_of(const char *text, const char *name)
{
    const size_t n = strlen(name);
    return !strncmp(text, name, n) && text[n] == ':' ? text + n + 1 : NULL;
}

static void fold(emit_file *f, const char *name)
{
    shape s = {.n_members = 0};
    const char *numbers;
    bool first = true;
    weft__text_format(s.name, sizeof s.name, "%s", name);
    bool folds = !f->keeps_shapes && find_members(&s, f->functions.text);
    for (size_t i = 0; folds && (numbers = weft__emit_steps_array(&f->steps, i)); i++) {
        numbers = array_of(numbers, s.name);
        if (!numbers) continue;
        folds = compare_array(&s, numbers, first);
        first = false;
    }
    if (folds) check_casts(&s, &f->functions);
    if (folds) read_all(&s, &f->functions, NULL);
    folds = folds && !s.fails;
    if (folds) {
        emit_text functions = {0};
        choose_types(&s);
        read_all(&s, &f->functions, &functions);
        weft__emit_text_free(&f->functions);
        f->functions = functions;
    }
    for (size_t i = 0; (numbers = weft__emit_steps_array(&f->steps, i)); i++) {
        emit_text some = {0};
        numbers = array_of(numbers, s.name);
        if (!numbers) continue;
        if (folds)
            write_array(&s, numbers, &some);
        else
            weft__emit_text_add(&some, numbers, strlen(numbers));
        weft__emit_steps_set_array(&f->steps, i, &some);
        weft__emit_text_free(&some);
    }
}

void weft__emit_fold_shapes(emit_file *f)
{
    const char *array;
    for (size_t i = 0; f->functions.n && (array = weft__emit_steps_array(&f->steps, i)); i++) {
        char name[NAME_BYTES];
        const char *end = strchr(array, ':');
        if (!end || end[1] == '{' || (size_t)(end - array) >= sizeof name) continue;
        memcpy(name, array, (size_t)(end - array));
        name[end - array] = 0;
        fold(f, name);
    }
}
