/* unicode.h - characters: UTF-8, and the properties that tokenisers ask for. They are those of the
 * package `tokenizers`, whose parts follow different versions of Unicode. Not installed. */
#ifndef WEFT_TOKENIZERS_UNICODE_H
#define WEFT_TOKENIZERS_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a character of UTF-8 by its first byte; 1 for a byte that begins none. */
static inline size_t weft__tk_character_bytes(unsigned char first)
{
    return first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

/* The character at the beginning of valid UTF-8, whose bytes *n becomes. */
static inline uint32_t weft__tk_decode(const char *text, size_t *n)
{
    const unsigned char *b = (const unsigned char *)text;
    *n = weft__tk_character_bytes(b[0]);
    switch (*n) {
    case 1:
        return b[0];
    case 2:
        return (b[0] & 0x1Fu) << 6 | (b[1] & 0x3Fu);
    case 3:
        return (b[0] & 0x0Fu) << 12 | (b[1] & 0x3Fu) << 6 | (b[2] & 0x3Fu);
    default:
        return (b[0] & 0x07u) << 18 | (b[1] & 0x3Fu) << 12 | (b[2] & 0x3Fu) << 6 | (b[3] & 0x3Fu);
    }
}

/* Writes a character and returns its bytes. */
static inline size_t weft__tk_encode(uint32_t c, char bytes[4])
{
    if (c < 0x80) return bytes[0] = (char)c, 1;
    if (c < 0x800) {
        bytes[0] = (char)(0xC0 | c >> 6), bytes[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        bytes[0] = (char)(0xE0 | c >> 12), bytes[1] = (char)(0x80 | (c >> 6 & 0x3F));
        bytes[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    bytes[0] = (char)(0xF0 | c >> 18), bytes[1] = (char)(0x80 | (c >> 12 & 0x3F));
    bytes[2] = (char)(0x80 | (c >> 6 & 0x3F)), bytes[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

/* The bytes of the maximal part of a character at the beginning of n bytes, at least 1; *valid
 * becomes whether it is a whole one (Unicode 15, section 3.9, U+FFFD substitution). */
size_t weft__tk_part(const char *text, size_t n, bool *valid);

bool weft__tk_is_letter(uint32_t c);      /* L */
bool weft__tk_is_number(uint32_t c);      /* N */
bool weft__tk_is_space(uint32_t c);       /* White_Space */
bool weft__tk_is_word(uint32_t c);        /* \w of Rust's regular expressions */
bool weft__tk_is_mark(uint32_t c);        /* M, by Unicode 9 */
bool weft__tk_is_nonspacing(uint32_t c);  /* Mn, by Unicode 8 */
bool weft__tk_is_punctuation(uint32_t c); /* P, by Unicode 8, and what ASCII has of S */
bool weft__tk_is_other(uint32_t c);       /* Cc, Cf, Co */
bool weft__tk_is_ideograph(uint32_t c);   /* what BERT puts spaces around */

/* The canonical or else compatible decomposition; the number of characters, at most `capacity`. */
#define TK_DECOMPOSED 32
size_t weft__tk_decompose(uint32_t c, bool compatible, int32_t out[TK_DECOMPOSED]);
int weft__tk_combining_class(uint32_t c);
/* The composition of two characters; 0 if there is none. */
uint32_t weft__tk_compose(uint32_t a, uint32_t b);
/* The character that byte level maps a byte to, and back; -1: none. */
uint32_t weft__tk_byte_character(unsigned char byte);
int weft__tk_character_byte(uint32_t character);

/* The lower case, one or two characters: their number. */
size_t weft__tk_lowercase(uint32_t c, uint32_t out[2]);

#endif
