/* characters.h - the characters of a text, of which some bytes may not be UTF-8. */
#ifndef WEFT_TEXT_CHARACTERS_H
#define WEFT_TEXT_CHARACTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The character at *text, which advances; 0x110000 + byte for a byte that begins none. */
int32_t weft__text_next(const char **text);
/* White space as defined by Unicode. */
bool weft__text_is_space(int32_t c);

#endif
