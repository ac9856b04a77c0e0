/* A network that learns to read handwritten digits, as a page calls it (page.html), or a program
 * (native.c). All state is static: there is one network. */
#ifndef DIGITS_H
#define DIGITS_H

#include <stdbool.h>
#include <stdint.h>

enum { DIGITS_PIXELS = 64, DIGITS_CLASSES = 10, DIGITS_TRAIN = 1437, DIGITS_VALID = 360 };

/* Where the caller puts the images, 0 to 16 a pixel, and the digits on them: those to train on,
 * then those to validate with. */
uint8_t *digits_images(void);
uint8_t *digits_labels(void);

/* Makes a new network, whose first contents depend on the seed. False if that fails. */
bool digits_start(uint32_t seed);
/* Trains n steps; returns the loss of the last one, NaN if one fails. */
float digits_train(int n);
/* The part of the images to validate with that is read correctly. */
float digits_accuracy(void);
/* The probabilities of the digits, of an image of 0 to 16 a pixel. */
const float *digits_read(const uint8_t *image);
/* weft_params_hash of the parameters, as 16 hexadecimal digits. */
const char *digits_hash(void);
/* Why a function has failed. */
const char *digits_error(void);

#endif
