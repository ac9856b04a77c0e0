/* Names of values as identifiers. */
#include "emit.h"

#include <ctype.h>
#include <string.h>

/* Words that C99 or C++ reserve, and that a value may be called. */
static bool is_reserved(const char *name)
{
    static const char *const words[] = {
        "and",      "asm",       "auto",      "bool",     "break",    "case",     "catch",
        "char",     "class",     "const",     "continue", "default",  "delete",   "do",
        "double",   "else",      "enum",      "explicit", "export",   "extern",   "false",
        "float",    "for",       "friend",    "goto",     "if",       "inline",   "int",
        "long",     "mutable",   "namespace", "new",      "not",      "operator", "or",
        "private",  "protected", "public",    "register", "restrict", "return",   "short",
        "signed",   "sizeof",    "static",    "struct",   "switch",   "template", "this",
        "throw",    "true",      "try",       "typedef",  "typeid",   "typename", "union",
        "unsigned", "using",     "virtual",   "void",     "volatile", "while",    "xor"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(name, words[i])) return true;
    return false;
}

const char *weft__emit_identifier(const char *name, char buffer[EMIT_NAME_BYTES])
{
    size_t n = 0;
    if (isdigit((unsigned char)*name)) buffer[n++] = '_';
    for (; *name && n + 2 < EMIT_NAME_BYTES; name++)
        buffer[n++] = isalnum((unsigned char)*name) ? *name : '_';
    buffer[n] = 0;
    if (is_reserved(buffer)) strcpy(buffer + n, "_");
    return buffer;
}

bool weft__emit_is_identifier(const char *name)
{
    char same[EMIT_NAME_BYTES];
    return name && *name && strlen(name) < EMIT_NAME_BYTES - 32 &&
           !strcmp(weft__emit_identifier(name, same), name);
}
