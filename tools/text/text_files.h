/* The files next to a model that say how it reads and writes text: vocabularies, tokenisers, chat
 * templates, tokens that end a text, and the configuration of sentence-transformers. */
#ifndef WEFT_TOOLS_TEXT_FILES_H
#define WEFT_TOOLS_TEXT_FILES_H

#include "tool.h"

#include "base/file.h"

/* The folder of a run, which may be a file in it. False if the path is too long. */
bool text_files_folder(const char *run, char folder[FILE_PATH_BYTES], weft_error *error);
/* Copies those that are in the folder `from` into the folder `to`, which exists: the files of a
 * list, and MODULE/config.json of each module that modules.json names. `from` may also be a file in
 * the folder. */
bool text_files_copy(const char *from, const char *to, weft_error *error);

#endif
