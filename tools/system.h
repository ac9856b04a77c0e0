/* What the program asks of an operating system beyond what its libraries do (base/platform.h):
 * streams, terminals, signals, other programs, and the memory of the process. system_posix.c,
 * system_posix_memory.c and system_windows.c implement it. Unless it says otherwise, a function that
 * fails sets errno. */
#ifndef WEFT_TOOLS_SYSTEM_H
#define WEFT_TOOLS_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- The process ---- */

/* Returns run(argc, argv), with the arguments in UTF-8 and streams that change no byte, and on a
 * stack that is large enough for commands and the libraries that they use. */
int system_run(int (*run)(int argc, char **argv), int argc, char **argv);
/* Opens those of the standard streams that the caller has closed. Otherwise the next file that the
 * program opens would be one of them, and printed text would go into that file. Reading from
 * standard input and printing still fail. */
bool system_open_streams(void);
/* From now on, a write beyond the limit of file sizes fails like any other. */
void system_limit_files(void);
/* From now on, a signal that asks the program to end calls `take` with its number, and the second
 * one ends the program at once. Writes that nobody reads fail. `launched`: also a signal that
 * launchers of several processes pass on. `take` may do no more than a handler of signals. */
void system_take_signals(void (*take)(int number), bool launched);
/* Until it is called with NULL, Ctrl-C calls `take` instead of ending the program. */
void system_take_interrupt(void (*take)(int number));

/* ---- Memory ---- */

/* Bytes that this process may still allocate (machine, control groups, limits); NAN if unknown. */
double system_memory_available(void);
/* The maximum of bytes in memory since the program began, or since the last call of
 * system_forget_peak where the system can forget it. */
double system_memory_peak(void);
void system_forget_peak(void);

/* ---- Streams ---- */

bool system_is_terminal(FILE *file);
/* Columns of the terminal; 0 if the file is not one. */
int system_columns(FILE *file);
/* A descriptor of a new file without a name, to be written and read; -1 on failure. */
int system_unnamed_file(void);
/* A descriptor of a file to be read, or of standard input if the path is "-"; waits for the writer of
 * a pipe. -1 on failure. */
int system_open_input(const char *path);
/* A stream that reads what a function returns, which is -1 on failure and 0 at the end. `close` is
 * called once, perhaps before the stream is closed, and also after a failure, NULL; it returns 0
 * unless it fails. */
typedef struct stream_source {
    void *context;
    ptrdiff_t (*read)(void *context, char *buffer, size_t bytes);
    int (*close)(void *context);
} stream_source;
FILE *system_open_source(const stream_source *source);

/* A stream whose bytes become a text. */
typedef struct text_stream {
    FILE *file;
    char *text; /* after text_stream_close; the caller frees it */
    size_t bytes;
} text_stream;
/* False if out of memory. */
bool text_stream_open(text_stream *s);
/* False if something could not be written. The caller frees the text in any case. */
bool text_stream_close(text_stream *s);

/* ---- Other programs ---- */

/* A program that runs between two pipes. */
typedef struct system_child {
    int to, from; /* descriptors */
    intptr_t process;
} system_child;
/* Starts a program that the search path has; what it prints as errors is discarded. Returns an error
 * number, ENOENT if the program is missing. */
int system_start(system_child *child, const char *program);
/* `write` writes the program's standard input, which ends then. False if not all could be sent: the
 * program may have ended early. */
bool system_send(system_child *child, void (*write)(void *context, FILE *to), void *context);
/* Reads some of its standard output; 0 at the end, -1 on failure. */
ptrdiff_t system_receive(const system_child *child, char *buffer, size_t bytes);
/* Waits for the end of the program, and returns how it ended: 0 with success. */
int system_wait(system_child *child);

#endif
