/* text.h - texts of templates: UTF-8 with the white space and the cases of Python, and buffers. Not
 * installed. */
#ifndef WEFT_CHAT_TEXT_H
#define WEFT_CHAT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether str.isspace holds for a character. */
bool weft__ct_is_space(uint32_t c);
/* Bytes of white space at the beginning, and at the end. */
size_t weft__ct_leading_spaces(const char *text, size_t bytes);
size_t weft__ct_trailing_spaces(const char *text, size_t bytes);
/* Bytes of the last character of a text that is not empty. */
size_t weft__ct_last_character(const char *text, size_t bytes);

size_t weft__ct_characters(const char *text, size_t bytes);
/* The byte that the character of that index begins with; `bytes` for the end. */
size_t weft__ct_offset(const char *text, size_t bytes, size_t character);
/* Where `part` begins in a text; SIZE_MAX if it is not in it. */
size_t weft__ct_find(const char *text, size_t bytes, const char *part, size_t part_bytes);
/* The bytes of the line end at the beginning (str.splitlines); 0 if there is none. */
size_t weft__ct_line_end(const char *text, size_t bytes);

/* A growing text. After `failed` nothing is added. */
typedef struct ct_buffer {
    char *text;
    size_t n, capacity, limit;
    bool failed, too_large;
} ct_buffer;

void weft__ct_put(ct_buffer *b, const char *text, size_t bytes);
void weft__ct_put_text(ct_buffer *b, const char *text);
void weft__ct_put_character(ct_buffer *b, uint32_t c);
void weft__ct_buffer_free(ct_buffer *b);

/* What str.upper, lower, title and capitalize make of a text. */
typedef enum ct_case { CT_UPPER, CT_LOWER, CT_TITLE, CT_CAPITALIZE } ct_case;
void weft__ct_put_case(ct_buffer *b, const char *text, size_t bytes, ct_case to);
/* Whether str.isdigit holds for a character, near enough: decimal digits, and raised and circled ones. */
bool weft__ct_is_digit(uint32_t c);
/* Whether a character is printable, as repr asks. */
bool weft__ct_is_printable(uint32_t c);
/* Whether all cased characters are upper or lower, and there is one. */
bool weft__ct_is_case(const char *text, size_t bytes, ct_case of);

#endif
