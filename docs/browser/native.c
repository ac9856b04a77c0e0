/* digits X.NPY Y.NPY VALID_X.NPY VALID_Y.NPY [STEPS [SEED]]: trains the network of digits.c on this
 * processor, and prints what the page shows in a browser. */
#include "digits.h"

#include <stdio.h>
#include <stdlib.h>

enum { HEADER = 128, EVERY = 100 };

/* Reads the numbers of a file of NumPy, which are bytes here. */
static bool read_bytes(const char *path, uint8_t *data, size_t n)
{
    FILE *file = fopen(path, "rb");
    const bool good = file && fseek(file, HEADER, SEEK_SET) == 0 && fread(data, 1, n, file) == n;
    if (!good) fprintf(stderr, "%s: expected a file of NumPy with %zu bytes\n", path, n);
    if (file) fclose(file);
    return good;
}

int main(int argc, char **argv)
{
    if (argc < 5) return fprintf(stderr, "usage: digits X Y VALID_X VALID_Y [STEPS [SEED]]\n"), 2;
    const int steps = argc > 5 ? atoi(argv[5]) : 1000, seed = argc > 6 ? atoi(argv[6]) : 1;
    uint8_t *images = digits_images(), *labels = digits_labels();
    if (!read_bytes(argv[1], images, DIGITS_TRAIN * DIGITS_PIXELS) ||
        !read_bytes(argv[2], labels, DIGITS_TRAIN) ||
        !read_bytes(argv[3], images + DIGITS_TRAIN * DIGITS_PIXELS, DIGITS_VALID * DIGITS_PIXELS) ||
        !read_bytes(argv[4], labels + DIGITS_TRAIN, DIGITS_VALID))
        return 1;
    if (!digits_start((uint32_t)seed)) return fprintf(stderr, "%s\n", digits_error()), 1;
    for (int step = EVERY; step <= steps; step += EVERY) {
        const float loss = digits_train(EVERY), accuracy = digits_accuracy();
        if (loss != loss) return fprintf(stderr, "%s\n", digits_error()), 1;
        printf("step %d loss %.9g accuracy %.4f hash %s\n", step, loss, accuracy, digits_hash());
    }
    return 0;
}
