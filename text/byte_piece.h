/* byte_piece.h - pieces that stand for a byte: <0xNN>. Not installed. */
#ifndef WEFT_TEXT_BYTE_PIECE_H
#define WEFT_TEXT_BYTE_PIECE_H

#include <stddef.h>
#include <string.h>

/* The byte of a piece of n bytes; -1 if it is another piece. */
static inline int byte_of_piece(const char *piece, size_t n)
{
    int value = 0;
    if (n != 6 || memcmp(piece, "<0x", 3) != 0 || piece[5] != '>') return -1;
    for (int i = 3; i < 5; i++) {
        const char c = piece[i];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) return -1;
        value = 16 * value + digit;
    }
    return value;
}

#endif
