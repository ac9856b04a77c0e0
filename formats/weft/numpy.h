/* weft/numpy.h - arrays in the files of NumPy: .npy (one array) and .npz (a zip archive of them).
 *
 * The arrays of a file are tensors of a store (weft/store.h). weft's dtypes are NumPy's float32,
 * float64, int32 and bool. bf16 is V2, which the Python package ml_dtypes views as bfloat16, and u8
 * is written as uint8. On reading, other dtypes become one that can represent all their numbers:
 *
 *     float16                          f32
 *     int8, int16, uint8, uint16       i32
 *     int64, uint32, uint64            i32; WEFT_TOO_LARGE if a number does not fit
 *
 * Arrays of either byte order and of C or Fortran order are read; C order is written. Other dtypes
 * (complex numbers, text, records, Python objects) are refused. The format:
 * numpy.lib.format in NumPy's reference, versions 1.0 to 3.0. */
#ifndef WEFT_NUMPY_H
#define WEFT_NUMPY_H

#include <weft/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Adds the array of a .npy file to the store as tensor `name`, or replaces the contents of that
 * tensor, whose dtype and shape must be equal. Every number in the header is checked against the
 * size of the file. On failure the store does not change: WEFT_NOT_FOUND if there is no such file,
 * WEFT_BAD_FILE if it is malformed, WEFT_BAD_DTYPE, WEFT_TOO_LARGE, WEFT_BAD_SHAPE if it does not
 * fit the store's tensor. */
WEFT_API weft_status weft_npy_load(weft_params *params, const char *name, const char *path,
                                   weft_error *error);
/* The same for all arrays of a .npz file, each under its name there without ".npy". Needs a weft
 * that was built with libzip: otherwise WEFT_BAD_ARGUMENT. */
WEFT_API weft_status weft_npz_load(weft_params *params, const char *path, weft_error *error);
/* Adds the array named `array`, as weft_npy_load does; WEFT_NOT_FOUND if there is none. */
WEFT_API weft_status weft_npz_load_array(weft_params *params, const char *name, const char *path,
                                         const char *array, weft_error *error);

/* Writes a tensor as a .npy file. PATH is replaced as weft_params_save does it. */
WEFT_API weft_status weft_npy_save(const weft_tensor *tensor, const char *path, weft_error *error);
/* Writes the tensors that `filter` selects (NULL: all) as a .npz file. Also needs libzip. */
WEFT_API weft_status weft_npz_save(const weft_params *params, const char *path,
                                   const weft_params_filter *filter, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
