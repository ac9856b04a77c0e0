/* Loads each FILE into the states of the emitted step net.h, and prints "FILE: loaded" or "FILE: refused".
 * A file that is refused must not change them. `-o FILE` saves them; `-s` makes a step.
 * Usage: emit_state [-s | -o FILE | FILE]... */
#include "net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static union {
    double align;
    unsigned char bytes[NET_ARENA_BYTES];
} arena;
static union {
    double align;
    unsigned char bytes[NET_STATE_BYTES];
} states, before;
static unsigned char file[NET_FILE_BYTES];

static int load(net *m, const char *path)
{
    FILE *from = fopen(path, "rb");
    unsigned char *bytes;
    long n;
    int refused;
    if (!from || fseek(from, 0, SEEK_END) || (n = ftell(from)) < 0 || fseek(from, 0, SEEK_SET))
        return 1;
    bytes = malloc((size_t)n); /* no byte more, for sanitizers */
    if (n && (!bytes || fread(bytes, 1, (size_t)n, from) != (size_t)n)) return 1;
    fclose(from);
    before = states;
    refused = net_load(m, bytes, (size_t)n);
    free(bytes);
    printf("%s: %s\n", path, refused ? "refused" : "loaded");
    return refused && memcmp(&before, &states, sizeof states);
}

static int save(const net *m, const char *path)
{
    FILE *to = fopen(path, "wb");
    net_save(m, file);
    return !to || fwrite(file, sizeof file, 1, to) != 1 || fclose(to);
}

static int step(net *m)
{
    static const int32_t ids[2][6] = {{1, 2, 3, 4, 5, 6}, {7, 8, 9, 1, 2, 3}};
    static const int32_t next[2][6] = {{2, 3, 4, 5, 6, 7}, {8, 9, 1, 2, 3, 4}};
    net_io io;
    memset(&io, 0, sizeof io);
    io.target_in = ids[0];
    io.target_out = next[0];
    return net_step(m, &io, 0.01f);
}

int main(int argc, char **argv)
{
    net m = {&arena, &states, 0, 0};
    int i, failed = 0;
    net_init(&m);
    for (i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-s"))
            failed |= step(&m);
        else if (!strcmp(argv[i], "-o") && i + 1 < argc)
            failed |= save(&m, argv[++i]);
        else
            failed |= load(&m, argv[i]);
    }
    return failed;
}
