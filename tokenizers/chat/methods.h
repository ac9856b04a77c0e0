/* methods.h - methods of texts in two files. Not installed. */
#ifndef WEFT_CHAT_METHODS_H
#define WEFT_CHAT_METHODS_H

#include "chat/template.h"

/* A method that searches, splits, formats or classifies a text; NULL if there is none. */
const ct_function *weft__ct_find_searching_method(const ct_value *name);

/* text.format(...) (format.c) */
ct_value weft__ct_format_method(ct_render *r, const ct_value *self, const ct_args *args);

#endif
